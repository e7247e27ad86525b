// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// compared is a Runner with a Neutron in memory, and without a server of OVN's database.
type compared struct {
	*testing.T
	neutron *neutronfake.Neutron
	store   *intent.Store
	runner  *Runner
	// done gets something after each comparison.
	done chan struct{}
}

func startCompared(t *testing.T, change func(*intent.Tx)) *compared {
	c := &compared{T: t, neutron: neutronfake.Start(t), store: intent.NewStore(), done: make(chan struct{})}
	changeIntent(t, c.store, change)
	var err error
	c.runner, err = New(Options{
		Log: slog.New(slog.DiscardHandler), Cloud: cloud.Access{Endpoint: c.neutron.URL, Project: "p"},
		Northbound: []string{"unix:/none"}, Intent: known{c.store}, Access: reconciletest.Access(), Hub: nothing{},
		Monitor: heartbeat.New(heartbeat.Bound),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := c.runner
	ctx, cancel := context.WithCancel(t.Context())
	r.client = cloud.New(cloud.Options{
		Access: r.Cloud, Log: r.Log, Want: r.want, Found: r.found, Report: func(refused []resource.Problem, err error) {
			r.report(refused, err)
			select {
			case c.done <- struct{}{}:
			case <-ctx.Done():
			}
		},
	})
	var running sync.WaitGroup
	running.Go(func() { r.client.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// await waits until something is so after a comparison; each but the first is asked for.
func (c *compared) await(what string, is func() bool) {
	c.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case <-c.done:
		case <-end:
			c.Fatalf("after a minute: %s", what)
		}
		if is() {
			return
		}
	}
}

// answers says whether nodes answer for the FloatingIP of the Service.
func (c *compared) answers() bool {
	_, has := c.runner.supplement.want().Get(nb.Ref{Table: "Logical_Router", Key: "Front/shop/web"})
	return has
}

// floating is the floating IP of an address, as Neutron has it.
func (c *compared) floating(address string) map[string]any {
	for _, f := range c.neutron.All("floatingips") {
		if f["floating_ip_address"] == address {
			return f
		}
	}
	return nil
}

func (c *compared) call(method, path, body string) {
	c.Helper()
	status, answer, err := neutronfake.Call(c.Context(), method, c.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		c.Fatalf("%s: %d, %v, %v", path, status, answer, err)
	}
}

// give has another project get an address that the cluster has.
func (c *compared) give(address string) {
	c.Helper()
	was := c.floating(address)
	if was != nil {
		c.call(http.MethodDelete, fmt.Sprintf("floatingips/%s", was["id"]), "")
	}
	var network any
	for _, n := range c.neutron.All("networks") {
		if n["name"] == "net-wan" {
			network = n["id"]
		}
	}
	c.call(http.MethodPost, "floatingips", fmt.Sprintf(`{"floatingip": {"project_id": "q", "floating_network_id": %q,
		"floating_ip_address": %q}}`, network, address))
}

// No node answers for an address that Neutron has not got for the Service any more: another project
// may have it. As soon as it is there again, nodes answer.
func TestLostFloatingIP(t *testing.T) {
	const address, other = "198.51.100.40", "198.51.100.41"
	start := func(t *testing.T) *compared {
		c := startCompared(t, func(tx *intent.Tx) {
			tx.SetNetwork(wanNetwork())
			floatingService(tx, address)
		})
		c.await("no node answers", func() bool { return c.answers() })
		return c
	}
	t.Run("deleted by hand, and another project's", func(t *testing.T) {
		c := start(t)
		c.give(address)
		c.runner.client.Reread()
		c.await("a node answers for another project's address", func() bool { return !c.answers() })
		c.call(http.MethodDelete, fmt.Sprintf("floatingips/%s", c.floating(address)["id"]), "")
		c.await("no node answers again", func() bool { return c.answers() })
	})
	t.Run("deleted by hand, and made again", func(t *testing.T) {
		c := start(t)
		c.call(http.MethodDelete, fmt.Sprintf("floatingips/%s", c.floating(address)["id"]), "")
		c.runner.client.Reread()
		c.await("there is none", func() bool { return c.floating(address) != nil })
		if !c.answers() {
			t.Error("no node answers")
		}
	})
	t.Run("deleted by hand, and no call succeeds", func(t *testing.T) {
		c := start(t)
		c.give(address)
		c.neutron.Fail(func(_ int, method, _ string) neutronfake.Fault {
			if method == http.MethodPost {
				return neutronfake.Busy
			}
			return neutronfake.None
		})
		c.runner.client.Reread()
		c.await("a node answers for another project's address", func() bool { return !c.answers() })
	})
	t.Run("of a load balancer for a while", func(t *testing.T) {
		c := start(t)
		octavia := func(is bool) {
			changeIntent(t, c.store, func(tx *intent.Tx) {
				v, _ := c.store.State().Services().Get("shop/web")
				v.Octavia = is
				tx.SetService(v)
			})
		}
		octavia(true)
		c.runner.client.Changed()
		c.await("it is still the Service's own", func() bool { return c.floating(address) == nil })
		c.give(address)
		octavia(false)
		if c.answers() {
			t.Error("a node answers for another project's address")
		}
	})
	t.Run("with another address, that another project has", func(t *testing.T) {
		c := start(t)
		c.give(other)
		changeIntent(t, c.store, func(tx *intent.Tx) { floatingService(tx, other) })
		if c.answers() {
			t.Error("a node answers for an address that Neutron was not asked for")
		}
		c.runner.client.Changed()
		c.await("the former address is still there", func() bool { return c.floating(address) == nil })
		if c.answers() {
			t.Error("a node answers for another project's address")
		}
	})
}

// Nodes answer for a FloatingIP of which the names are too long for a description in Neutron.
func TestFloatingIPOfLongName(t *testing.T) {
	name := strings.Repeat("n", 63) + "/" + strings.Repeat("f", 200)
	c := startCompared(t, func(tx *intent.Tx) {
		tx.SetNetwork(wanNetwork())
		floatingService(tx, "198.51.100.41")
		tx.SetFloatingIP(intent.FloatingIP{
			Name: name, Network: "wan", Address: netip.MustParseAddr("198.51.100.40"), Service: "shop/web",
		})
	})
	c.await("no node answers", func() bool {
		_, has := c.runner.supplement.want().Get(nb.Ref{Table: "Logical_Router", Key: nb.Key("Front/" + name)})
		return has
	})
}
