"""The Kubernetes side: decodes what the API server sends to values and events of the scheduler, and sends the writes.

auth       kubeconfig or service account -> address of the server, TLS, credentials
transport  one exchange, or one stream of lines; each failure says whether anything was sent
codec      JSON -> scheduler.model
watch      list-watch: complete lists, then every change
client     the verbs: bind, evict, report, read
"""
