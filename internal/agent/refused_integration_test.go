// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/ovstest/refuser"
	"coelan.io/coelan/openflow"
)

// testRule allows TCP to ports, or all.
func testRule(policy string, ports ...uint16) intent.Rule {
	r := intent.Rule{
		ID:     "NetworkPolicy/default/" + policy + "/ingress/1",
		Policy: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: policy}, Number: 1,
		Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow, AnyPeer: true,
	}
	for _, p := range ports {
		r.Ports = append(r.Ports, intent.PortRange{Protocol: uint8(intent.TCP), First: p, Last: p})
	}
	return r
}

func testService(n int) intent.NodeService {
	return intent.NodeService{
		Namespace: "default", Name: fmt.Sprintf("svc-%d", n), UID: fmt.Sprintf("suid-%d", n), Router: intent.DefaultRouterName,
		Ports: []intent.NodeServicePort{{
			Protocol: intent.TCP, Port: 80, ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}),
			Endpoints: []intent.Endpoint{{Address: netip.MustParseAddr("10.244.1.10"), Port: 8080}},
		}},
	}
}

// server is a pod that answers TCP at port 8080.
type server struct {
	attachment.Attachment
	ns *ovstest.Namespace
}

func (w *world) server(id string) server {
	w.t.Helper()
	ns, err := ovstest.NewNamespace("")
	w.must(err)
	w.t.Cleanup(ns.Close)
	s := server{w.plugIn(id, ns.Path()), ns}
	var l net.Listener
	w.must(ns.Do(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 244, 1, 1)}); err != nil {
			return err
		}
		l, err = net.Listen("tcp4", ":8080")
		return err
	}))
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return s
}

// dial connects from a pod.
func (s server) dial(to netip.AddrPort, patience time.Duration) error {
	return s.ns.Do(func() error {
		c, err := net.DialTimeout("tcp4", to.String(), patience)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (s server) address() netip.AddrPort { return netip.AddrPortFrom(s.Addresses[0].Addr(), 8080) }

// reaches fails unless a pod gets a connection, or gets none.
func (w *world) reaches(from server, to netip.AddrPort, want bool) {
	w.t.Helper()
	patience := bound
	if !want {
		patience = 700 * time.Millisecond
	}
	if err := from.dial(to, patience); (err == nil) != want {
		w.t.Errorf("%s to %s: %v, want a connection: %v", from.PodRef(), to, err, want)
	}
}

// change updates the intent and waits until it is on the switch.
func (w *world) change(change func(*intent.Tx)) {
	w.t.Helper()
	state, err := w.agent.intent.Update(func(tx *intent.Tx) error { change(tx); return nil })
	w.must(err)
	ctx, cancel := context.WithTimeout(w.t.Context(), bound)
	defer cancel()
	w.must(w.agent.backend.Applied(ctx, state.Revision()))
}

// refusals fails unless these objects are left out, as status and check show.
func (w *world) refusals(want ...string) {
	w.t.Helper()
	var got, found []string
	for _, r := range query[agentapi.Status](w, "/v1/status", "").Refused {
		got = append(got, r.Kind+" "+r.Name)
	}
	for _, f := range query[agentapi.Check](w, "/v1/check", "").Findings {
		if f.Kind == "refused" {
			found = append(found, f.Object)
		} else {
			w.t.Errorf("check: %+v", f)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	slices.Sort(found)
	if !slices.Equal(got, want) || !slices.Equal(found, want) {
		w.t.Errorf("status has %v refused, check %v, want %v", got, found, want)
	}
}

// refuseText refuses flows that have one of these in them, with an error of Open vSwitch's.
func refuseText(texts ...string) refuser.Refuse {
	return func(m openflow.Message) *openflow.Error {
		mod, ok := m.(*openflow.FlowMod)
		if !ok || mod.Command != openflow.FlowAdd {
			return nil
		}
		// A text ends where a field does.
		rule := strings.NewReplacer(",", " ", "\n", " ").Replace(mod.Flow.String()) + " "
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(rule, text+" ") }) {
			return &openflow.Error{Type: 2, Code: 5}
		}
		return nil
	}
}

// TestRefusedObjects puts a switch that refuses messages between an agent and Open vSwitch.
func TestRefusedObjects(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	dir, err := os.MkdirTemp("", "refuser") //nolint:usetesting // sockets want a short path
	w.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	proxy, err := refuser.Start(dir, w.ovs.Dir, "br-int")
	w.must(err)
	t.Cleanup(proxy.Close)
	w.cfg.OVSRunDir = proxy.Dir()
	w.cfg.Policy.Mode, w.cfg.Services.Mode = config.EnforcedPolicies, config.NativeServices
	w.start()
	w.ready()
	for _, id := range []string{"a", "b", "c", "late", "refused"} {
		w.change(func(tx *intent.Tx) { tx.SetSubject(intent.Subject{Key: intent.PodSubject("uid-" + id)}) })
	}
	a, b, c := w.server("a"), w.server("b"), w.server("c")
	w.reaches(a, b.address(), true)
	w.reaches(a, c.address(), true)

	govern := func(tx *intent.Tx, pod string, rule intent.Rule) {
		tx.SetRule(rule)
		tx.SetSubject(intent.Subject{
			Key: intent.PodSubject("uid-" + pod), Rules: []string{rule.ID}, IngressIsolation: []intent.PolicyRef{rule.Policy},
		})
	}
	t.Run("policy", func(t *testing.T) {
		proxy.Set(refuseText("tp_dst=7777"), false)
		w.change(func(tx *intent.Tx) {
			govern(tx, "b", testRule("bad", 7777, 8080))
			govern(tx, "c", testRule("good", 8080))
		})
		w.refusals("NetworkPolicy default/bad")
		w.reaches(a, b.address(), false)
		w.reaches(a, c.address(), true)
		w.reaches(b, c.address(), false) // nothing leaves a closed port, either
		trace := query[agentapi.Trace](w, "/v1/trace", fmt.Sprintf(
			`{"from":"default/a","destination":%q,"protocol":"tcp","destinationPort":8080,"conntrack":["trk,new"]}`, b.address().Addr()))
		if want := "the switch refuses NetworkPolicy default/bad: OFPBAC_BAD_ARGUMENT"; !strings.Contains(fmt.Sprintf("%+v", trace), want) {
			t.Errorf("trace has no %q: %+v", want, trace)
		}
		if want := "networkpolicy default/bad: RefusedBySwitch: node n1: the switch refuses it: OFPBAC_BAD_ARGUMENT"; !strings.Contains(w.events.all(), want) {
			t.Errorf("no event %q in:\n%s", want, w.events.all())
		}
		w.change(func(tx *intent.Tx) { govern(tx, "b", testRule("bad", 8080)) })
		w.refusals()
		w.reaches(a, b.address(), true)
		w.reaches(b, c.address(), true)
	})
	t.Run("port", func(t *testing.T) {
		// Numbers are given in turn.
		proxy.Set(refuseText(fmt.Sprintf("in_port=%d", c.OFPort+1)), true)
		ns, err := ovstest.NewNamespace("")
		w.must(err)
		defer ns.Close()
		bad, err := w.tryPlug("refused", ns.Path())
		if err == nil || !strings.Contains(err.Error(), "the switch refuses it: OFPBAC_BAD_ARGUMENT") {
			t.Fatalf("attach with a refused port: %v", err)
		}
		w.refusals("Port default/refused/eth0")
		w.reaches(w.server("late"), c.address(), true)
		w.must(w.agent.dataplane().Detach(t.Context(), bad))
		_, err = w.agent.store.Release(bad.Key)
		w.must(err)
		w.must(w.plumber.Remove(bad.HostInterface))
	})
	service := func(n int) intent.NodeService {
		v := testService(n)
		v.Ports[0].Endpoints = []intent.Endpoint{{Address: c.address().Addr(), Port: 8080}}
		return v
	}
	at := func(n int) netip.AddrPort { return netip.AddrPortFrom(service(n).Ports[0].ClusterIP, 80) }
	t.Run("services", func(t *testing.T) {
		for _, atCommit := range []bool{false, true} {
			var texts, names []string
			for n := 256; n < 356; n++ {
				texts, names = append(texts, "nw_dst="+at(n).Addr().String()), append(names, "Service default/"+service(n).Name)
			}
			proxy.Set(refuseText(texts...), atCommit)
			w.change(func(tx *intent.Tx) {
				for n := 256; n < 356; n++ {
					tx.SetNodeService(service(n))
				}
				tx.SetNodeService(service(8))
			})
			w.refusals(names...)
			w.reaches(a, at(8), true)
			w.reaches(a, at(300), false)
			if atCommit {
				break
			}
			w.change(func(tx *intent.Tx) {
				for n := 256; n < 356; n++ {
					tx.DeleteNodeService(fmt.Sprintf("default/svc-%d", n))
				}
			})
			w.refusals()
		}
	})
	t.Run("another switch", func(t *testing.T) {
		proxy.Set(nil, false)
		proxy.Break()
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		for err := a.dial(at(300), time.Second); err != nil; err = a.dial(at(300), time.Second) {
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		w.refusals()
	})
}
