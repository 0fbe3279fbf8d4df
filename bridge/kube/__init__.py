"""The Kubernetes side: decodes what the API server sends to values and events of the scheduler, and sends the writes.

access     auth.py (as kubectl does), access.py, kubeconfig.py, kubernetes_config.py, sources.py, exec_plugin.py,
           kept_credentials.py
requests   transport.py: one exchange, or one stream of lines; responses.py: the error of an answer
decoding   codec.py: JSON to values of scheduler.model; wire.py, decoding.py, objects.py, pods.py, pod_times.py, cut.py
watches    watch.py: complete lists, then every change; lists.py, versions.py; mirror.py: the copy of a standby
writes     client.py: bind, evict, conditions and others; lease.py
doctor     admin_reads.py
"""
