// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/openflow"
)

// BenchmarkAddPort adds and removes a port of a bridge that has 100, by a
// transaction of ours and by ovs-vsctl, alternating.
func BenchmarkAddPort(b *testing.B) {
	ovs, c, ctx := open(b)
	veths(b, ovs, "v", 108)
	var ports []Port
	for i := range 100 {
		ports = append(ports, Port{Name: fmt.Sprintf("v%d", i), OFPort: 16 + i})
	}
	if err := c.EnsurePorts(ctx, "br0", ports...); err != nil {
		b.Fatal(err)
	}
	notices, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), openflow.ConnOptions{Async: true, Handler: func(m openflow.Message) {
		if p, ok := m.(*openflow.PortStatus); ok && p.Reason == openflow.PortAdded {
			c.PortAdded(p.Port.Name, int(p.Port.No))
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer notices.Close()
	var ours, theirs, eight []time.Duration
	// removed waits until ovs-vswitchd, too, has removed what DelPorts did.
	removed := func(names ...string) {
		if err := c.DelPorts(ctx, "br0", names...); err != nil {
			b.Fatal(err)
		}
		if err := c.EnsureBridge(ctx, Bridge{Name: "br0", Datapath: ovs.Datapath}); err != nil {
			b.Fatal(err)
		}
	}
	timed := func(to *[]time.Duration, fn func() error) {
		start := time.Now()
		if err := fn(); err != nil {
			b.Fatal(err)
		}
		*to = append(*to, time.Since(start))
	}
	for b.Loop() {
		timed(&ours, func() error { return c.EnsurePorts(ctx, "br0", Port{Name: "v100", OFPort: 200}) })
		removed("v100")
		timed(&theirs, func() error {
			_, err := ovs.Vsctl(ctx, "add-port", "br0", "v100", "--", "set", "interface", "v100", "ofport_request=200")
			return err
		})
		vsctl(b, ovs, "del-port", "br0", "v100")
		timed(&eight, func() error {
			var g errgroup.Group
			for i := range 8 {
				g.Go(func() error {
					return c.EnsurePorts(ctx, "br0", Port{Name: fmt.Sprintf("v%d", 100+i), OFPort: 200 + i})
				})
			}
			return g.Wait()
		})
		removed("v100", "v101", "v102", "v103", "v104", "v105", "v106", "v107")
	}
	b.ReportMetric(median(ours), "ms/add")
	b.ReportMetric(median(theirs), "ms/ovs-vsctl")
	b.ReportMetric(median(eight), "ms/8-at-once")
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}
