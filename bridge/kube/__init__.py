"""The Kubernetes end: what it says becomes the scheduler's nouns and events, what was decided becomes its writes.

auth       kubeconfig or service account -> where the server is, TLS, who we are
transport  one exchange, or one stream of lines; its failures say whether anything was sent
codec      JSON -> scheduler.model
watch      list-watch: complete lists, then every change
client     the verbs: bind, evict, report, read
"""
