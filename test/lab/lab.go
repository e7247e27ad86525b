// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/ovstest"
)

// buildTimeout bounds the start of one node or the plugging of one pod; long,
// because the same tests run in an emulated machine.
const buildTimeout = 90 * time.Second

// Options say what a Lab is made of. The zero value is two dual-stack nodes
// with VXLAN between them, on the datapath of the environment.
type Options struct {
	Nodes         int                  // 0: 2
	Families      Family               // 0: Dual
	Datapath      config.Datapath      // empty: ovstest.DatapathEnv, else netdev
	Encapsulation config.Encapsulation // empty: VXLAN
	// PodCIDRs are those of node n1, n2, …; nil: 10.244.1.0/24 and fd00:10:244:1::/64, …
	PodCIDRs func(node int) []string
	// Configure changes the agents' configuration before they start.
	Configure func(*config.Config)
	// Policies has agents, or OVN, enforce policies, which the test gives them by
	// Lab.PublishPolicies: all pods are closed until it does.
	Policies bool
	// Binaries is the directory of coelan-agent and coelan-cni of another release;
	// empty: those under test.
	Binaries string
	// NoAgents leaves the nodes with Open vSwitch alone.
	NoAgents bool
	// OVN runs OVN, and the agents have the backend ovn.
	OVN bool
	// Neutron runs OVN and a Neutron on it, and the agents have the backend neutron.
	Neutron bool
	// OneCard has nodes boot with their addresses on the network card itself, on either datapath.
	OneCard bool
}

// Lab is a small cluster.
type Lab struct {
	Nodes   []*Node
	Outside *Host
	API     *API
	// Policies are there if Options ask for them, but for OVN, and so are OVN and Neutron.
	Policies *Policies
	OVN      *OVN
	Neutron  *Neutron

	options Options
	dir     string
	fabric  *fabric
	beyond  []*Host // those behind a router, and routers, that are no part of the cluster
}

// New builds a cluster that lasts until the test ends. With agents, it returns
// when every agent can plug pods.
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	l, err := Start(t.Context(), o)
	t.Cleanup(l.Close)
	l.ReportOn(t)
	if err != nil {
		t.Fatalf("build the lab: %v", err)
	}
	return l
}

// Start builds a cluster that lasts until Close, which must be called also
// after an error.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.Families == 0 {
		o.Families = Dual
	}
	if o.Datapath == "" {
		o.Datapath = Datapath()
	}
	o.OVN = o.OVN || o.Neutron
	if o.Encapsulation == "" {
		o.Encapsulation = config.VXLAN
	}
	l := &Lab{options: o}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Nodes)*buildTimeout)
	defer cancel()
	return l, l.build(ctx)
}

// Datapath is the datapath that tests are to use.
func Datapath() config.Datapath {
	if d := os.Getenv(ovstest.DatapathEnv); d != "" {
		return config.Datapath(d)
	}
	return config.DatapathNetdev
}

func (l *Lab) build(ctx context.Context) (err error) {
	// Short, because the paths of unix sockets must stay below 108 bytes.
	if l.dir, err = os.MkdirTemp("", "lab"); err != nil {
		return err
	}
	if l.fabric, err = newFabric(l.options.Datapath == config.DatapathNetdev); err != nil {
		return err
	}
	if l.Outside, err = newOutside(l.fabric, l.options.Families); err != nil {
		return err
	}
	l.API = newAPI()
	l.API.addServiceRanges(l.options.Families)
	if l.options.Policies && !l.options.OVN {
		if err := l.startPolicies(); err != nil {
			return err
		}
	}
	if l.options.OVN {
		if err := l.startOVN(ctx); err != nil {
			return err
		}
	}
	if l.options.Neutron {
		if err := l.startNeutron(ctx); err != nil {
			return err
		}
	}
	for range l.options.Nodes {
		if _, err := l.AddNode(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ReportOn has the ends of all logs written to the test's output if it fails.
func (l *Lab) ReportOn(t testing.TB) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if l.Neutron != nil {
			t.Logf("not done by Neutron: %v; its log ends:\n%s", l.Neutron.Unsupported(), l.Neutron.Log())
		}
		for _, n := range l.Nodes {
			t.Logf("node n%d: agent log ends:\n%s", n.index, n.AgentLogTail())
			if n.OVS != nil {
				t.Logf("node n%d: warnings at the end of ovs-vswitchd.log:\n%s", n.index,
					warnings(n.OVS.LogTail("ovs-vswitchd")))
			}
		}
	})
}

// warnings are the lines of an Open vSwitch log that are not mere information.
func warnings(log string) string {
	var out []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "|INFO|") && !strings.Contains(line, "|DBG|") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// Close ends everything and removes what is on disk.
func (l *Lab) Close() {
	for _, n := range l.Nodes {
		n.stop()
	}
	if l.Policies != nil {
		l.Policies.close()
	}
	if l.Neutron != nil {
		l.Neutron.close()
	}
	if l.OVN != nil {
		l.OVN.Stop()
	}
	if l.API != nil {
		l.API.Stop()
	}
	for _, h := range l.beyond {
		h.close()
	}
	if l.Outside != nil {
		l.Outside.close()
	}
	if l.fabric != nil {
		l.fabric.close()
	}
	os.RemoveAll(l.dir)
}
