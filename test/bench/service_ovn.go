// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"coelan.io/coelan/test/lab"
)

// ovn is OVN on one node that has no Coelan: both databases, ovn-northd and ovn-controller, as
// Debian has them.
type ovn struct {
	node *lab.Node
	dir  string
}

// ovnSchemas is where Debian's ovn-common puts the databases' schemas.
const ovnSchemas = "/usr/share/ovn"

// ovnTimeout bounds every wait for one of its processes.
const ovnTimeout = time.Minute

// startOVN starts it and returns when the node is one of its chassis.
func startOVN(ctx context.Context, n *lab.Node) (*ovn, error) {
	o := &ovn{node: n, dir: filepath.Join(n.Dir(), "ovn")}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	for db, schema := range map[string]string{"nb": "OVN_Northbound", "sb": "OVN_Southbound"} {
		file := filepath.Join(o.dir, db+".db")
		// The first writer makes the one row of the global table: a change that is made meanwhile
		// would wait forever.
		row := fmt.Sprintf(`[%q,{"op":"insert","table":"%s_Global","row":{}}]`, schema, strings.ToUpper(db))
		for _, args := range [][]string{{"create", file, filepath.Join(ovnSchemas, "ovn-"+db+".ovsschema")},
			{"transact", file, row}} {
			if out, err := exec.CommandContext(ctx, "ovsdb-tool", args...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("OVN's %s database: %w: %s", db, err, out)
			}
		}
		if err := o.daemon("ovsdb-server", db, file, "--remote=p"+o.remote(db)); err != nil {
			return nil, err
		}
	}
	if _, err := n.OVS.Vsctl(ctx, "set", "open_vswitch", ".", "external_ids:system-id="+n.Name,
		"external_ids:ovn-remote="+o.remote("sb"),
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip="+n.Address(lab.IPv4).String(),
		"external_ids:ovn-bridge-datapath-type="+n.OVS.Datapath); err != nil {
		return nil, err
	}
	if err := o.daemon("ovn-northd", "northd", "--ovnnb-db="+o.remote("nb"), "--ovnsb-db="+o.remote("sb")); err != nil {
		return nil, err
	}
	if err := o.daemon("ovn-controller", "controller", "unix:"+n.OVS.DBSocket()); err != nil {
		return nil, err
	}
	// ovn-controller makes the bridge when it knows its chassis.
	_, err := n.OVS.Vsctl(ctx, "wait-until", "bridge", "br-int")
	return o, err
}

func (o *ovn) remote(db string) string { return "unix:" + filepath.Join(o.dir, db+".sock") }

// daemon starts one of its processes, which ends with the node.
func (o *ovn) daemon(program, name string, args ...string) error {
	log, err := os.Create(filepath.Join(o.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := o.node.OVS.Command(context.Background(), program, args...)
	cmd.Env = append(cmd.Env, "OVN_RUNDIR="+o.dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := o.node.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	go func() { _ = cmd.Wait() }() // killed with the node
	return nil
}

// nbctl changes the logical network and waits until the node has it.
func (o *ovn) nbctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ovnTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ovn-nbctl",
		append([]string{"--db=" + o.remote("nb"), "--wait=hv"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovn-nbctl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// balance makes a logical switch with two ports, for a client and a server, and one load balancer.
// There is no logical router: the client knows the server's MAC for the balanced address, which
// saves OVN what a router would cost.
func (o *ovn) balance(ctx context.Context) (client, server *lab.Host, err error) {
	const name = "pods"
	var hosts [2]*lab.Host
	if _, err := o.nbctl(ctx, "ls-add", name); err != nil {
		return nil, nil, err
	}
	for i, port := range []string{"client", "server"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 2)}), 24)
		mac := net.HardwareAddr{0x0a, 0, 0, 0, 0, byte(i + 2)}
		if _, err := o.nbctl(ctx, "lsp-add", name, port, "--", "lsp-set-addresses", port,
			mac.String()+" "+address.Addr().String()); err != nil {
			return nil, nil, err
		}
		g, err := o.node.AddGuest(ctx, port, port, mac, []netip.Prefix{address})
		if err != nil {
			return nil, nil, err
		}
		hosts[i] = g.Host
		if i == 0 {
			continue
		}
		for _, args := range [][]string{
			{"route", "add", serviceAddress.Addr().String(), "dev", "eth0"},
			{"neighbour", "add", serviceAddress.Addr().String(), "lladdr", mac.String(), "dev", "eth0"},
		} {
			if _, err := hosts[0].Run(ctx, "ip", args...); err != nil {
				return nil, nil, err
			}
		}
	}
	endpoint := netip.AddrPortFrom(hosts[1].Address(lab.IPv4), serverPort)
	_, err = o.nbctl(ctx, "lb-add", "service", serviceAddress.String(), endpoint.String(), "tcp", "--", "ls-lb-add",
		name, "service")
	return hosts[0], hosts[1], err
}
