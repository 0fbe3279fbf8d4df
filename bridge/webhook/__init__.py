"""`slurm-bridge webhook`: sets the scheduler of new pods of managed namespaces, for Kubernetes before 1.36.

    review.py             the answer to one AdmissionReview (pure)
    server.py             the HTTPS server that the API server calls
    certificates.py       makes, reads and checks certificates, without files and network (pure)
    certificate_files.py  a certificate in two files, which another program renews
    own_certificate.py    makes and renews a certificate, keeps it in a Secret, and shows its authority to the API server
    metrics.py            what it counts, for Prometheus
    command.py            the command line, start and stop

The webhook and the bridge do not communicate.  Without the webhook, pods that name no scheduler go to another scheduler,
and nothing else changes.
"""
