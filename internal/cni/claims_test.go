// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
)

// Where addresses and a MAC can be asked for, and which counts.
func TestAskedAddresses(t *testing.T) {
	runtime := `"capabilities":{"ips":true,"mac":true},"runtimeConfig":{"ips":["10.9.0.7/24","10.9.0.8"],"mac":"02:00:00:00:00:07"}`
	general := `"args":{"cni":{"ips":["10.9.0.9"],"mac":"02:00:00:00:00:09"},"labels":1}`
	for _, tt := range []struct{ name, keys, args, want, err string }{
		{"nothing", ``, "", "[10.9.0.64/24] 0a:ce:0a:09:00:40", ""},
		{"runtimeConfig", runtime, "", "[10.9.0.7/24 10.9.0.8/24] 02:00:00:00:00:07", ""},
		{"args", general, "", "[10.9.0.9/24] 02:00:00:00:00:09", ""},
		{"CNI_ARGS", ``, ";IP=10.9.0.10/24,10.9.0.11;MAC=02-00-00-00-00-0A", "[10.9.0.10/24 10.9.0.11/24] 02:00:00:00:00:0a", ""},
		{"empty IP", ``, ";IP=", "[10.9.0.64/24] 0a:ce:0a:09:00:40", ""},
		{"all", runtime + "," + general, ";IP=10.9.0.10;MAC=02:00:00:00:00:0a", "[10.9.0.7/24 10.9.0.8/24] 02:00:00:00:00:07", ""},
		{"each from another", `"runtimeConfig":{"mac":"02:00:00:00:00:07","portMappings":[]}`, ";IP=10.9.0.10", "[10.9.0.10/24] 02:00:00:00:00:07", ""},
		{"bad address", `"runtimeConfig":{"ips":["10.9.0"]}`, "", "", `runtimeConfig in the network configuration: address "10.9.0"`},
		{"bad address in args", `"args":{"cni":{"ips":["x"]}}`, "", "", `args.cni in the network configuration: address "x"`},
		{"bad address in CNI_ARGS", ``, ";IP=10.9.0.10,x", "", `CNI_ARGS: address "x"`},
		{"bad MAC", `"runtimeConfig":{"mac":"02:00"}`, "", "", `runtimeConfig in the network configuration: MAC "02:00"`},
		{"ips of another type", `"runtimeConfig":{"ips":"10.9.0.7"}`, "", "", `runtimeConfig in the network configuration has the value {"ips":"10.9.0.7"}`},
		{"args of another type", `"args":[]`, "", "", `args in the network configuration has the value []`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _ := newPlanned(t)
			keys := `"network":"blue"`
			if tt.keys != "" {
				keys += "," + tt.keys
			}
			r := delegate("a", "net1", keys)
			r.Args = strings.Replace(r.Args, "IgnoreUnknown=1;", "", 1) + tt.args
			_, err := w.Handle(t.Context(), r)
			if tt.err != "" {
				if err == nil || err.Code != 7 || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v\nwant %s", err, tt.err)
				}
				r.Command = "DEL"
				w.must(r) // what never was can be deleted all the same
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			a := w.store.List()[0]
			if got := fmt.Sprint(a.Addresses, " ", a.MAC); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// When the blocks of a Network are used up, others are claimed; when there are none,
// a pod stays without.
func TestMoreBlocks(t *testing.T) {
	w, p := newPlanned(t)
	var names []string
	for i := range 9 { // two blocks of four addresses
		name := fmt.Sprint("c", i)
		w.kernel.pods["/run/netns/"+name] = map[string]podnet.Interface{}
		names = append(names, name)
		p.pods["pod-"+name] = []attachment.Plan{p.on("red", "net1")}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	for _, name := range names {
		wg.Go(func() {
			if _, err := w.Handle(t.Context(), addRequest(name)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, name)
				if err.Code != wire.CodeExhausted || !strings.Contains(err.Error(), "Network red has no free address left") {
					t.Errorf("error %v", err)
				}
			}
		})
	}
	wg.Wait()
	if len(failed) != 1 || len(w.store.On("red")) != 8 || len(p.networks["red"].blocks) != 3 {
		t.Fatalf("failed: %v; on red: %d; blocks %v", failed, len(w.store.On("red")), p.networks["red"].blocks)
	}
	i := slices.IndexFunc(names, func(n string) bool { return n != failed[0] })
	w.must(as("DEL", addRequest(names[i])))
	w.must(addRequest(failed[0]))
}

// A Planner that claims again and again what others use up ends in an error.
func TestClaimsAreBounded(t *testing.T) {
	w, p := newPlanned(t)
	n := p.networks["blue"]
	n.free = nil
	for i := range 20 {
		n.free = append(n.free, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(100 + i)}), 32))
		if err := w.store.Hold("blue", n.free[i].Addr(), "shop/vm"); err != nil {
			t.Fatal(err)
		}
	}
	p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1")}
	_, err := w.Handle(t.Context(), addRequest("a"))
	if err == nil || err.Code != wire.CodeExhausted || !strings.Contains(err.Error(), "Network blue has no free address left") {
		t.Errorf("error %v", err)
	}
	if len(n.blocks) != 1+maxClaims {
		t.Errorf("%d blocks were claimed", len(n.blocks))
	}
}

// An Unclaim that fails keeps no pod from being deleted.
func TestUnclaimFails(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1", addresses("10.9.0.7"))}
	w.must(addRequest("a"))
	p.fails["Unclaim"] = errors.New("the API server is away")
	w.must(as("DEL", addRequest("a")))
	if got := w.snapshot(); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}
