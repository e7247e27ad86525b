#!/bin/sh
# A kernel without SCTP cannot run upstream's SCTP servers. They idle here, so that their pods become ready and
# everything but SCTP itself can be tested.
if [ "$1" = porter ] && [ ! -e /proc/net/sctp ] && env | grep -q '^SERVE_SCTP_PORT_'; then
  exec /agnhost.real pause
fi
exec /agnhost.real "$@"
