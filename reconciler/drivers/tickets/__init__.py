"""Keep tickets up to date in the trackers of a site: GitHub, Jira, or a web server of its own.

trackers   one ticket per thread, whatever is lost: known, found again by its marker, or created
github     issues of a repository
jira       issues of a project, on Data Center and Cloud
webhook    JSON that is posted
"""
