#!/bin/sh
# On a kernel without SCTP another program plays SCTP's servers and clients, as far as their handshake.
if [ ! -e /proc/net/sctp ]; then
  case $1 in
    porter) if env | grep -q '^SERVE_SCTP_PORT_'; then exec /sctp "$@"; fi ;;
    connect) case " $* " in *" --protocol=sctp "*) exec /sctp "$@" ;; esac ;;
  esac
fi
exec /agnhost.real "$@"
