{{- define "reconciler.selector" -}}
app.kubernetes.io/name: reconciler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "reconciler.labels" -}}
{{ include "reconciler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "reconciler.binding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "reconciler.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .root.Release.Name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
