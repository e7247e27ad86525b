// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/backend/ovn/southbound"
)

// logicalPort is one that this node has an interface for.
type logicalPort struct {
	name string // in OVN's databases; empty: not known yet
	of   string // the pod, machine or node
	link string // the interface
	// plugged says that the interface is as it should be, so that OVN has to bind the port here.
	plugged bool
}

// readBindings reads from OVN's southbound database. It is southbound.Read.
type readBindings func(
	ctx context.Context, o southbound.Options, chassis string, ports []string,
) (southbound.View, error)

// compareSouthbound compares ports with what OVN's southbound database has of them, which it reads
// from the same servers as the node's ovn-controller.
func (b *Backend) compareSouthbound(
	ctx context.Context, ids map[string]string, ports []logicalPort, c *agentapi.Check,
) {
	chassis := ids[idSystem]
	servers := southboundOf(ids)
	if servers == "" || chassis == "" {
		c.Findings.Add("southbound", "of this node", "is not known: ovn-controller needs external_ids:%s and %s of Open "+
			"vSwitch, by backend.southbound of the configuration or by an administrator", idRemote, idSystem)
		return
	}
	o := southbound.Options{Remotes: strings.Split(servers, ",")}
	if why := b.withoutAccess(o.Remotes); why != "" {
		c.NotCompared = append(c.NotCompared, "the bindings of ports in OVN's southbound database, "+servers+": "+why)
		return
	}
	var v southbound.View
	err := b.secure(&o)
	if err == nil {
		var names []string
		for _, p := range ports {
			if p.plugged && p.name != "" {
				names = append(names, p.name)
			}
		}
		v, err = b.bindings(ctx, o, chassis, names)
	}
	if err != nil {
		c.Findings.Add("southbound", servers, "cannot be read, so that bindings of ports are not compared; is "+
			"ovn-controller connected, as ovn-appctl connection-status says? %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	compareBindings(&c.Findings, chassis, ports, v, b.owned)
}

// southboundOf is where the node's ovn-controller finds OVN's southbound database; empty: that is
// not configured.
func southboundOf(ids map[string]string) string {
	return cmp.Or(ids[idRemote+"-"+ids[idSystem]], ids[idRemote])
}

// withoutAccess says why the agent is not meant to read from servers; empty: it is.
func (b *Backend) withoutAccess(servers []string) string {
	if b.Config.Backend.Certificates == "" && slices.ContainsFunc(servers, func(s string) bool {
		return strings.HasPrefix(s, "ssl:")
	}) {
		return "the agent has no certificate for it: set backend.certificates, with the chart southboundSecret"
	}
	if !slices.ContainsFunc(servers, func(s string) bool {
		path, unix := strings.CutPrefix(s, "unix:")
		_, err := os.Stat(path)
		return !unix || err == nil
	}) {
		return "the agent does not see the socket"
	}
	return ""
}

// secure adds what servers with TLS need.
func (b *Backend) secure(o *southbound.Options) (err error) {
	if dir := b.Config.Backend.Certificates; dir != "" {
		o.TLS, err = remote.TLSFiles{
			Certificate: filepath.Join(dir, "tls.crt"), PrivateKey: filepath.Join(dir, "tls.key"),
			Authority: filepath.Join(dir, "ca.crt"),
		}.Config()
	}
	return err
}

// compareBindings adds what the southbound database has otherwise than the node. Rows of other
// systems, which owned says false of, are not looked at. It is a pure function of its arguments.
func compareBindings(
	found *agentapi.Findings, chassis string, ports []logicalPort, v southbound.View, owned func(owner string) bool,
) {
	if !v.HasChassis {
		found.Add("chassis", chassis, "is not in the table Chassis of OVN's southbound database: does ovn-controller run, "+
			"and under the name that external_ids:%s says?", idSystem)
		return
	}
	known := map[string]bool{}
	for _, p := range ports {
		known[p.name] = true
		if !p.plugged || p.name == "" {
			continue
		}
		const problem = "of %s, interface %s, "
		switch row, there := v.Bindings[p.name]; {
		case !there:
			found.Add("binding", p.name, problem+"is not in the table Port_Binding of OVN's southbound database: is it in the "+
				"northbound one, and does ovn-northd run?", p.of, p.link)
		case row.Chassis == "" && !row.On(chassis):
			found.Add("binding", p.name, problem+"is bound to no chassis in the table Port_Binding: does ovn-controller run?",
				p.of, p.link)
		case !row.On(chassis):
			found.Add("binding", p.name, problem+"is bound to chassis %s in the table Port_Binding, not to this node's, %s: "+
				"is an interface there plugged with external_ids:%s=%s? Remove it", p.of, p.link, row.Chassis, chassis, idInterface,
				p.name)
		case !row.Up:
			found.Add("binding", p.name, problem+"is bound to chassis %s in the table Port_Binding, but not up: "+
				"ovn-controller has not written its flows", p.of, p.link, chassis)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Bindings)) {
		if row := v.Bindings[name]; row.Type == "" && row.On(chassis) && !known[name] && owned(row.Owner) {
			found.Add("binding", name, "is bound to chassis %s in the table Port_Binding, and no pod or machine of this node "+
				"has it: remove the interface with external_ids:%s=%[3]s, or restart ovn-controller if there is none", chassis,
				idInterface, name)
		}
	}
}
