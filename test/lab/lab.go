// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
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
	// Configure changes the agents' configuration before they start.
	Configure func(*config.Config)
	// NoAgents leaves the nodes with Open vSwitch alone.
	NoAgents bool
}

// Lab is a small cluster.
type Lab struct {
	Nodes   []*Node
	Outside *Host
	API     *API

	options Options
	dir     string
	fabric  *fabric
}

// New builds a cluster that lasts until the test ends. With agents, it returns
// when every agent can plug pods.
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.Families == 0 {
		o.Families = Dual
	}
	if o.Datapath == "" {
		o.Datapath = config.Datapath(os.Getenv(ovstest.DatapathEnv))
	}
	if o.Datapath == "" {
		o.Datapath = config.DatapathNetdev
	}
	if o.Encapsulation == "" {
		o.Encapsulation = config.VXLAN
	}
	l := &Lab{options: o}
	t.Cleanup(func() {
		if t.Failed() {
			l.report(t)
		}
		l.close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(o.Nodes)*buildTimeout)
	defer cancel()
	if err := l.build(ctx); err != nil {
		t.Fatalf("build the lab: %v", err)
	}
	return l
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
	for range l.options.Nodes {
		if _, err := l.AddNode(ctx); err != nil {
			return err
		}
	}
	return nil
}

// report writes the ends of the nodes' logs to the test's output.
func (l *Lab) report(t testing.TB) {
	for _, n := range l.Nodes {
		t.Logf("node %s: agent log ends:\n%s", n.Name, n.AgentLogTail())
		if n.OVS != nil {
			t.Logf("node %s: ovs-vswitchd.log ends:\n%s", n.Name, n.OVS.LogTail("ovs-vswitchd"))
		}
	}
}

func (l *Lab) close() {
	for _, n := range l.Nodes {
		n.stop()
	}
	if l.API != nil {
		l.API.close()
	}
	if l.Outside != nil {
		l.Outside.close()
	}
	if l.fabric != nil {
		l.fabric.close()
	}
	os.RemoveAll(l.dir)
}
