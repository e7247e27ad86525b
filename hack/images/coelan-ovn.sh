#!/bin/sh
# Runs one of OVN's programs in a container: the entry of the image coelan.io/ovn.
#
#   coelan-ovn nb | sb              a member of the cluster of a database
#   coelan-ovn northd               ovn-northd, of which one member's works and the others stand by
#   coelan-ovn controller           a node's ovn-controller
#   coelan-ovn ready nb|sb|northd|controller   succeeds when the program here does its work
#
# Settings: OVN_MEMBERS, addresses of all members with commas between them, and OVN_ADDRESS, this one's; OVN_DATA, the
# folder of the databases; OVN_TLS, a folder with tls.crt, tls.key and ca.crt, empty: none; OVN_RUN, the folder of sockets.
set -eu

: "${OVN_MEMBERS:=}" "${OVN_ADDRESS:=}" "${OVN_DATA:=/var/lib/ovn}" "${OVN_TLS:=}" "${OVN_RUN:=/run/ovn}"
: "${OVN_SCHEMAS:=/usr/share/ovn}" "${OVS_DATABASE:=unix:/run/openvswitch/db.sock}"
export OVN_RUNDIR="$OVN_RUN" OVS_RUNDIR="$OVN_RUN"
logs="-vconsole:info -vsyslog:off -vfile:off"
scheme=tcp tls=
if [ -n "$OVN_TLS" ]; then
  scheme=ssl
  tls="--private-key=$OVN_TLS/tls.key --certificate=$OVN_TLS/tls.crt --ca-cert=$OVN_TLS/ca.crt"
fi

# host ADDRESS: as remotes have it.
host() {
  case $1 in
    *:*) echo "[$1]" ;;
    *) echo "$1" ;;
  esac
}

# remotes PORT [but]: all members, or all but this one, with commas between them.
remotes() {
  list=
  for member in $(echo "$OVN_MEMBERS" | tr , ' '); do
    if [ "$member" != "$OVN_ADDRESS" ] || [ "${2:-}" != but ]; then
      list="$list${list:+,}$scheme:$(host "$member"):$1"
    fi
  done
  echo "$list"
}

# database nb|sb: sets what the database's server is made of.
database() {
  case $1 in
    nb) schema=OVN_Northbound port=6641 raft=6643 ;;
    sb) schema=OVN_Southbound port=6642 raft=6644 ;;
    *) echo "coelan-ovn: there is no database $1: nb or sb" >&2; exit 2 ;;
  esac
  file=$OVN_DATA/ovn$1.db control=$OVN_RUN/ovn$1_db.ctl
}

# clustered: some other member is in a cluster.
clustered() {
  for remote in $(remotes "$port" but | tr , ' '); do
    # shellcheck disable=SC2086 # several words
    if ovsdb-client $tls --timeout=3 query "$remote" \
      "[\"_Server\",{\"op\":\"select\",\"table\":\"Database\",\"where\":[[\"name\",\"==\",\"$schema\"]],\"columns\":[\"cid\"]}]" \
      2>/dev/null | grep -q '"cid":\["uuid"'; then
      return 0
    fi
  done
  return 1
}

# create: makes the file of a database. The first member makes the cluster, unless there is one, such as when its disk was
# lost; the others join it, which their servers try until there is one.
create() {
  mkdir -p "$OVN_DATA"
  rm -f "$file.new"
  own=$scheme:$(host "$OVN_ADDRESS"):$raft
  if [ "${OVN_MEMBERS%%,*}" = "$OVN_ADDRESS" ] && ! clustered; then
    ovsdb-tool create-cluster "$file.new" "$OVN_SCHEMAS/ovn-$1.ovsschema" "$own"
  else
    # shellcheck disable=SC2046 # several words
    ovsdb-tool join-cluster "$file.new" "$schema" "$own" $(remotes "$raft" but | tr , ' ')
  fi
  mv "$file.new" "$file"
}

serve() {
  database "$1"
  mkdir -p "$OVN_RUN"
  case ",$OVN_MEMBERS," in
    *",$OVN_ADDRESS,"*) ;;
    *)
      echo "coelan-ovn: $OVN_ADDRESS is none of the members $OVN_MEMBERS: choose their nodes by ovn.nodeSelector" >&2
      exit 2
      ;;
  esac
  [ -s "$file" ] || create "$1"
  # shellcheck disable=SC2086 # several words
  exec ovsdb-server "$file" $tls $logs --remote="p$scheme:$port:$(host "$OVN_ADDRESS")" \
    --remote="punix:$OVN_RUN/ovn$1_db.sock" --unixctl="$control"
}

ready() {
  case $1 in
    northd)
      ovs-appctl --timeout=5 --target="$OVN_RUN/ovn-northd.ctl" status | grep -Eq 'active|standby'
      return
      ;;
    controller)
      ovs-appctl --timeout=5 --target="$OVN_RUN/ovn-controller.ctl" connection-status | grep -q '^connected'
      return
      ;;
  esac
  database "$1"
  status=$(ovs-appctl --timeout=5 --target="$control" cluster/status "$schema")
  echo "$status" | grep -q '^Status: cluster member' && ! echo "$status" | grep -q '^Leader: unknown'
}

case ${1:-} in
  nb | sb) serve "$1" ;;
  northd)
    mkdir -p "$OVN_RUN"
    # shellcheck disable=SC2086 # several words
    exec ovn-northd $tls $logs --ovnnb-db="$(remotes 6641)" --ovnsb-db="$(remotes 6642)" --unixctl="$OVN_RUN/ovn-northd.ctl"
    ;;
  controller)
    mkdir -p "$OVN_RUN"
    # Where the bridge's socket is, too.
    OVS_RUNDIR=$(dirname "${OVS_DATABASE#unix:}")
    # shellcheck disable=SC2086 # several words
    exec ovn-controller $tls $logs "$OVS_DATABASE" --unixctl="$OVN_RUN/ovn-controller.ctl"
    ;;
  ready) ready "${2:-}" ;;
  *) echo "usage: coelan-ovn nb | sb | northd | controller | ready PROGRAM" >&2; exit 2 ;;
esac
