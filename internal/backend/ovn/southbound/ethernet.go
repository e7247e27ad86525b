// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// EthernetAddress reads, from the first server that answers, the Ethernet address that an IP
// address has on the switch of a logical port: another port's there, or a router's. It is empty if
// nothing there has the IP address, or OVN does not have the port.
func EthernetAddress(ctx context.Context, o Options, port string, a netip.Addr) (string, error) {
	return ask(ctx, o, func(ctx context.Context, r reader) (string, error) { return r.ethernetAddress(ctx, port, a) })
}

func (r reader) ethernetAddress(ctx context.Context, port string, a netip.Addr) (string, error) {
	rows, err := r.selectRows(ctx, bindingTable, []ovsdb.Condition{portNamed(port)}, "datapath")
	if err != nil || len(rows) == 0 {
		return "", err
	}
	datapath, _ := rows[0]["datapath"].(string)
	rows, err = r.selectRows(ctx, bindingTable, []ovsdb.Condition{
		ovsdb.NewCondition("datapath", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: datapath}),
	}, "mac", "options")
	if err != nil {
		return "", err
	}
	// A port to a router does not have the addresses: its peer, of the router, does.
	var peers []ovsdb.Condition
	for _, row := range rows {
		options, _ := row["options"].(map[string]string)
		if peer := options["peer"]; peer != "" {
			peers = append(peers, portNamed(peer))
		}
	}
	ofRouters, err := r.selectRows(ctx, bindingTable, peers, "mac")
	if err != nil {
		return "", err
	}
	for _, row := range append(rows, ofRouters...) {
		macs, _ := row["mac"].([]string)
		for _, m := range macs {
			if mac, there := ethernetOf(m, a); there {
				return mac, nil
			}
		}
	}
	return "", nil
}

// ethernetOf is the Ethernet address of an element of the column mac, such as
// "0a:00:00:00:00:01 10.0.0.1/24 fd00::1", if it has the IP address.
func ethernetOf(element string, a netip.Addr) (mac string, there bool) {
	fields := strings.Fields(element)
	for _, f := range fields {
		address, _, _ := strings.Cut(f, "/")
		if ip, err := netip.ParseAddr(address); err == nil && ip == a {
			return fields[0], true
		}
	}
	return "", false
}
