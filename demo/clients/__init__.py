"""The demo's live workload: topics, producers and consumer groups that know nothing of the library they test."""
