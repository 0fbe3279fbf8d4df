"""The page: what the bridge knows, as it changes, in a browser.

    snapshot.py   World → sections of items, one by one; and the story and waterfall of one workload
    source.py     what the page of a running bridge shows
    feed.py       looks in short slices; every item with the number of its last change
    server.py     the files, one stream of changes, one detail at a time; read only
    page.html, page.css, page.js   plain: no build step, nothing from elsewhere

A *section* is a mapping of items by key ("pods" by UID, "nodes" by name).  The stream sends, section by section, the items
that changed, and null for those that are gone.  So a server of the page may add sections, as `slurm-bridge dev` adds its
faults and invariants, and the page shows the sections that exist.
"""
