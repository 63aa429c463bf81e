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
{{- define "reconciler.engine.selector" -}}
app.kubernetes.io/name: reconciler-engine
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "reconciler.engine.labels" -}}
{{ include "reconciler.engine.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "reconciler.engine.certificates" -}}
{secret: {name: {{ .Values.engine.tls.secretName }}, items: [{key: ca.crt, path: engine/ca.pem}, {key: tls.crt, path: engine/cert.pem}, {key: tls.key, path: engine/key.pem}]}}
{{- end }}
{{- define "reconciler.egress" -}}
{{- range . }}
- to: [{ipBlock: {cidr: {{ .cidr | quote }}}}]
  ports: {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
  {{- end }}
{{- end }}
{{- end }}
{{- define "reconciler.engine.pod" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "reconciler.restricted" . }}
{{- end }}
{{- define "reconciler.restricted" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "reconciler.engine.container" -}}
image: {{ .root.Values.image.repository }}@{{ .root.Values.image.digest }}
env:
  - {name: HOME, value: /var/lib/reconciler}
  - {name: USER, value: reconciler} # the image may have no name for this uid
  - {name: RECONCILER_SECRETS, value: /run/credentials/secrets.yaml}
  # The volume is this pod's alone; kubelet shows its files to the pod's group.
  - {name: CREDENTIALS_DIRECTORY, value: /run/credentials}
  - {name: RECONCILER_ENGINE_TLS, value: /run/credentials/engine}
  - {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
resources: {{- toYaml (.of.resources | default .root.Values.resources) | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: state, mountPath: /var/lib/reconciler}
  - {name: tmp, mountPath: /tmp}
  - {name: credentials, mountPath: /run/credentials, readOnly: true}
{{- end }}
