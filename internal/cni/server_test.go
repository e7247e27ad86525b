// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
)

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestResultInEachVersion(t *testing.T) {
	host := attachment.HostInterface(attachment.Key{ContainerID: "a", IfName: "eth0"})
	modern := func(version, mtu string) string {
		return fmt.Sprintf(`{"cniVersion":"%s",
			"interfaces":[{"name":"%s","mac":"0a:cf:0a:f4:01:02"%s},{"name":"eth0","mac":"0a:ce:0a:f4:01:02"%s,"sandbox":"/run/netns/a"}],
			"ips":[{"interface":1,"address":"10.244.1.2/24","gateway":"10.244.1.1"},
			       {"interface":1,"address":"fd00:10:244:1::2/64","gateway":"fd00:10:244:1::1"}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.244.1.1"},{"dst":"::/0","gw":"fd00:10:244:1::1"}],
			"dns":{"nameservers":["10.96.0.10"]}}`, version, host, mtu, mtu)
	}
	legacy := func(version string) string {
		return strings.NewReplacer(`"interface":1,"address":"1`, `"version":"4","interface":1,"address":"1`,
			`"interface":1,"address":"f`, `"version":"6","interface":1,"address":"f`).Replace(modern(version, ""))
	}
	for version, want := range map[string]string{
		"0.3.0": legacy("0.3.0"), "0.3.1": legacy("0.3.1"), "0.4.0": legacy("0.4.0"),
		"1.0.0": modern("1.0.0", `,"mtu":1450`), "1.1.0": modern("1.1.0", `,"mtu":1450`),
	} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			r := addRequest("a")
			r.Config = fmt.Appendf(nil, `{"cniVersion":"%s","name":"coelan","dns":{"nameservers":["10.96.0.10"]}}`, version)
			if diff := cmp.Diff(decode(t, []byte(want)), decode(t, w.must(r))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneFamily(t *testing.T) {
	w := newWorld(t)
	w.node.node.PodCIDRs = prefixes("fd00:1::/64")
	got := string(w.must(addRequest("a")))
	if !strings.Contains(got, "fd00:1::2/64") || strings.Contains(got, "0.0.0.0/0") {
		t.Errorf("result of an IPv6 node: %s", got)
	}
	w.must(as("DEL", addRequest("a")))
	w.node.node.PodCIDRs = prefixes("10.0.0.0/24")
	got = string(w.must(addRequest("b")))
	if !strings.Contains(got, "10.0.0.2/24") || strings.Contains(got, "::/0") {
		t.Errorf("result of an IPv4 node: %s", got)
	}
}

func TestADDTwiceReturnsTheSameAndRepairs(t *testing.T) {
	for name, damage := range map[string]func(w *world, a attachment.Attachment){
		"nothing missing": func(*world, attachment.Attachment) {},
		"pair missing":    func(w *world, a attachment.Attachment) { w.kernel.remove(a.HostInterface) },
		"pod's end differs": func(w *world, a attachment.Attachment) {
			w.kernel.pods[a.Netns]["eth0"] = bare(a.HostInterface)
		},
		"port missing": func(w *world, a attachment.Attachment) { delete(w.bridge.ports, a.HostInterface) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.must(addRequest("a"))
			before := w.snapshot()
			damage(w, w.store.List()[0])
			if diff := cmp.Diff(string(first), string(w.must(addRequest("a")))); diff != "" {
				t.Errorf("results (-first +second):\n%s", diff)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("state (-before +after):\n%s", diff)
			}
		})
	}
}

// A second ADD that fails must not take a running pod's network away.
func TestFailedRepairRemovesNothing(t *testing.T) {
	w := newWorld(t)
	w.must(addRequest("a"))
	before := w.snapshot()
	for _, fail := range []map[string]error{w.bridge.fails, w.kernel.fails} {
		for _, method := range []string{"Attach", "Configure"} {
			fail[method] = errors.New("broken")
		}
		if _, err := w.Handle(t.Context(), addRequest("a")); err == nil {
			t.Error("ADD succeeded")
		}
		clear(fail)
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Errorf("the state changed:\n%s", diff)
		}
	}
}

func TestFailedADDLeavesNothing(t *testing.T) {
	for _, tt := range []struct{ on, method string }{
		{"kernel", "Verify"}, {"kernel", "Create"}, {"kernel", "Configure"}, {"bridge", "Attach"},
	} {
		t.Run(tt.method, func(t *testing.T) {
			w := newWorld(t)
			fails := map[string]map[string]error{"kernel": w.kernel.fails, "bridge": w.bridge.fails}[tt.on]
			fails[tt.method] = errors.New("it is broken")
			_, err := w.Handle(t.Context(), addRequest("a"))
			if err == nil || err.Code != wire.CodeFailed || !strings.Contains(err.Error(), "pod default/pod-a (container a/eth0) failed: it is broken") {
				t.Errorf("error %v", err)
			}
			if got := w.snapshot(); len(got) != 0 {
				t.Errorf("left behind: %v", got)
			}
			clear(fails)
			w.must(addRequest("a")) // and the next attempt works
		})
	}
}

// What cannot be undone stays recorded, so that DEL can finish it.
func TestFailedUndoIsLeftToDEL(t *testing.T) {
	w := newWorld(t)
	w.bridge.fails["Attach"] = errors.New("no answer")
	w.bridge.fails["Detach"] = errors.New("no answer either")
	_, err := w.Handle(t.Context(), addRequest("a"))
	if err == nil || !strings.Contains(err.Error(), "no answer; cleaning up is left to DEL: no answer either") {
		t.Errorf("error %v", err)
	}
	if len(w.store.List()) != 1 {
		t.Fatal("the attachment is not recorded")
	}
	if _, err := w.Handle(t.Context(), as("DEL", addRequest("a"))); err == nil {
		t.Error("DEL succeeded although the port is still there")
	}
	clear(w.bridge.fails)
	w.must(as("DEL", addRequest("a")))
	if got := w.snapshot(); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestDEL(t *testing.T) {
	w := newWorld(t)
	w.must(as("DEL", addRequest("a"))) // never added
	w.must(addRequest("a"))
	before := w.snapshot()
	for name, change := range map[string]func(*wire.Request){
		"another container": func(r *wire.Request) { r.ContainerID = "b" },
		"part of the id":    func(r *wire.Request) { r.ContainerID = "a0" },
		"another interface": func(r *wire.Request) { r.IfName = "eth1" },
		"another UID":       func(r *wire.Request) { r.Args = strings.Replace(r.Args, "uid-a", "uid-b", 1) },
	} {
		r := as("DEL", addRequest("a"))
		change(&r)
		w.must(r)
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Errorf("DEL of %s changed the state:\n%s", name, diff)
		}
	}
	for range 2 {
		w.must(as("DEL", addRequest("a")))
		if got := w.snapshot(); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	}
}

func TestDELCanBeRepeatedAfterAnyFailure(t *testing.T) {
	for _, method := range []string{"Remove", "Detach"} {
		w := newWorld(t)
		w.must(addRequest("a"))
		addresses := w.store.List()[0].Addresses
		w.kernel.fails[method], w.bridge.fails[method] = errors.New("broken"), errors.New("broken")
		if _, err := w.Handle(t.Context(), as("DEL", addRequest("a"))); err == nil {
			t.Errorf("%s: DEL succeeded", method)
		}
		if list := w.store.List(); len(list) != 1 || list[0].Addresses[0] != addresses[0] {
			t.Errorf("%s: the addresses are free although something is left", method)
		}
		clear(w.kernel.fails)
		clear(w.bridge.fails)
		w.must(as("DEL", addRequest("a")))
		if got := w.snapshot(); len(got) != 0 {
			t.Errorf("%s: left behind: %v", method, got)
		}
	}
}

func TestSameContainerWithOtherIdentity(t *testing.T) {
	w := newWorld(t)
	w.must(addRequest("a"))
	before := w.snapshot()
	r := addRequest("a")
	r.Args = strings.Replace(r.Args, "uid-a", "uid-b", 1)
	if _, err := w.Handle(t.Context(), r); err == nil || !strings.Contains(err.Error(), "container a/eth0 is attached for pod default/pod-a/eth0 with UID uid-a") {
		t.Errorf("ADD with another UID: %v", err)
	}
	r = addRequest("a")
	r.Netns = "/run/netns/b"
	if _, err := w.Handle(t.Context(), r); err == nil || !strings.Contains(err.Error(), "container a/eth0 is attached in /run/netns/a") {
		t.Errorf("ADD with another netns: %v", err)
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("the state changed:\n%s", diff)
	}
	w.kernel.end("/run/netns/a")
	w.must(r) // the old namespace is gone: it is a new start
	if list := w.store.List(); len(list) != 1 || list[0].Netns != "/run/netns/b" {
		t.Errorf("attachments: %v", list)
	}
}

// A StatefulSet's pod comes back with the same name and another UID before the old one's
// DEL arrives: both are there, and DEL takes the right one.
func TestSameNameOtherUID(t *testing.T) {
	w := newWorld(t)
	w.must(addRequest("a"))
	r := addRequest("b")
	r.Args = strings.Replace(r.Args, "K8S_POD_NAME=pod-b", "K8S_POD_NAME=pod-a", 1)
	w.must(r)
	w.must(as("DEL", addRequest("a")))
	if list := w.store.List(); len(list) != 1 || list[0].PodUID != "uid-b" || list[0].PodName != "pod-a" {
		t.Errorf("attachments: %v", list)
	}
}

func TestCHECK(t *testing.T) {
	checkRequest := func(prev string) wire.Request {
		r := as("CHECK", addRequest("a"))
		r.Config = []byte(strings.Replace(config, `"type"`, `"prevResult":`+prev+`,"type"`, 1))
		return r
	}
	for _, tt := range []struct {
		name   string
		change func(w *world, a attachment.Attachment, r *wire.Request)
		code   uint
		want   string
	}{
		{"all is well", func(*world, attachment.Attachment, *wire.Request) {}, 0, ""},
		{"interface differs", func(w *world, a attachment.Attachment, _ *wire.Request) {
			w.kernel.pods[a.Netns]["eth0"] = bare(a.HostInterface)
		}, wire.CodeCheck, "interface eth0 differs"},
		{"port missing", func(w *world, a attachment.Attachment, _ *wire.Request) {
			delete(w.bridge.ports, a.HostInterface)
		}, wire.CodeCheck, "is missing on bridge br-int"},
		{"netns gone", func(w *world, a attachment.Attachment, _ *wire.Request) { w.kernel.end(a.Netns) },
			wire.CodeInvalidNetns, "it does not exist"},
		{"not attached", func(w *world, a attachment.Attachment, _ *wire.Request) {
			w.must(as("DEL", addRequest("a")))
		}, wire.CodeUnknownContainer, "pod default/pod-a (container a/eth0) is not attached"},
		{"another UID", func(_ *world, _ attachment.Attachment, r *wire.Request) {
			r.Args = strings.Replace(r.Args, "uid-a", "uid-b", 1)
		}, wire.CodeUnknownContainer, "is not attached"},
		{"no prevResult", func(_ *world, _ attachment.Attachment, r *wire.Request) { r.Config = []byte(config) },
			wire.CodeInvalidConfig, "lacks the key prevResult"},
		{"prevResult with another address", func(_ *world, _ attachment.Attachment, r *wire.Request) {
			r.Config = []byte(strings.ReplaceAll(string(r.Config), "10.244.1.2/24", "10.244.1.9/24"))
		}, wire.CodeCheck, "prevResult lacks the address 10.244.1.2/24 of default/pod-a/eth0"},
		{"prevResult with another MAC", func(_ *world, _ attachment.Attachment, r *wire.Request) {
			r.Config = []byte(strings.ReplaceAll(string(r.Config), "0a:ce:", "0a:cd:"))
		}, wire.CodeCheck, "prevResult lacks the interface eth0 with MAC 0a:ce:0a:f4:01:02"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := checkRequest(string(w.must(addRequest("a"))))
			tt.change(w, w.store.List()[0:1][0], &r)
			before := w.snapshot()
			_, err := w.Handle(t.Context(), r)
			switch {
			case tt.code == 0 && err != nil:
				t.Errorf("error %v", err)
			case tt.code != 0 && (err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %d %q", err, tt.code, tt.want)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("CHECK changed the state:\n%s", diff)
			}
		})
	}
}

func TestGC(t *testing.T) {
	gc := func(w *world, list string) *wire.Error {
		_, err := w.Handle(t.Context(), wire.Request{Command: "GC",
			Config: []byte(strings.Replace(config, `"type"`, `"cni.dev/valid-attachments":`+list+`,"type"`, 1))})
		return err
	}
	w := newWorld(t)
	for _, path := range []string{"c", "d"} {
		w.kernel.pods["/run/netns/"+path] = map[string]podnet.Interface{}
	}
	for _, name := range []string{"a", "b", "c"} {
		w.must(addRequest(name))
	}
	other := addRequest("d")
	other.Config = []byte(strings.Replace(config, `"coelan"`, `"storage"`, 1))
	w.must(other)

	if err := gc(w, `[{"containerID":"a","ifname":"eth0"},{"containerID":"b","ifname":"net1"}]`); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, a := range w.store.List() {
		left = append(left, a.ConfName+" "+a.Key.String())
	}
	if diff := cmp.Diff([]string{"coelan a/eth0", "storage d/eth0"}, left); diff != "" {
		t.Errorf("left after GC (-want +got):\n%s", diff)
	}
	if _, err := w.Handle(t.Context(), wire.Request{Command: "GC", Config: []byte(config)}); err == nil || err.Code != wire.CodeInvalidConfig {
		t.Errorf("GC without a list: %v", err)
	}
	if len(w.store.List()) != 2 {
		t.Error("GC without a list removed something")
	}
	if err := gc(w, `null`); err != nil { // what an empty list of Go becomes
		t.Fatal(err)
	}
	if list := w.store.List(); len(list) != 1 || list[0].ConfName != "storage" {
		t.Errorf("left after GC with an empty list: %v", list)
	}
}

func TestSTATUS(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(w *world)
		code   uint
		want   string
	}{
		{"ready", func(*world) {}, 0, ""},
		{"node not known", func(w *world) { w.node.err = errors.New("node n1 was not seen yet") }, 50, "node n1 was not seen yet"},
		{"no podCIDR", func(w *world) { w.node.node.PodCIDRs = nil }, 50, "no podCIDR"},
		{"not synced", func(w *world) { w.bridge.fails["Ready"] = errors.New("first sync is under way") }, 50, "first sync is under way"},
		{"OVS down", func(w *world) { w.bridge.fails["Ready"] = fmt.Errorf("%w: ovs-vswitchd is down", ErrLimited) }, 51, "ovs-vswitchd is down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			_, err := w.Handle(t.Context(), wire.Request{Command: "STATUS", Config: []byte(config)})
			if tt.code == 0 && err != nil || tt.code != 0 && (err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %d %q", err, tt.code, tt.want)
			}
		})
	}
}

func TestReconcile(t *testing.T) {
	w := newWorld(t)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.kernel.pods["/run/netns/"+name] = map[string]podnet.Interface{}
		w.must(addRequest(name))
	}
	host := func(name string) string {
		return attachment.HostInterface(attachment.Key{ContainerID: name, IfName: "eth0"})
	}
	w.kernel.end("/run/netns/a")          // its pod has ended
	w.kernel.remove(host("b"))            // its ADD was cut off, or the pair was deleted
	delete(w.kernel.pods, "/run/netns/c") // cannot be seen, but the pair lives
	w.kernel.host["co000000000000"] = podnet.Interface{Attachment: attachment.Attachment{
		Spec: attachment.Spec{Key: attachment.Key{IfName: "x"}, Netns: "/run/netns/d"},
	}} // of no attachment

	report, err := w.Reconcile(t.Context())
	if err == nil || !strings.Contains(err.Error(), "default/pod-c/eth0 (container c): network namespace /run/netns/c cannot be seen") {
		t.Errorf("error %v, want it to name the namespace of c", err)
	}
	var got []string
	for _, a := range report.Released {
		got = append(got, "released "+a.ContainerID)
	}
	for _, a := range report.Repaired {
		got = append(got, "repaired "+a.ContainerID)
	}
	for _, name := range report.Removed {
		got = append(got, "removed "+name)
	}
	if diff := cmp.Diff([]string{"released a", "repaired b", "removed co000000000000"}, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	var left []string
	for _, a := range w.store.List() {
		left = append(left, a.ContainerID)
	}
	if diff := cmp.Diff([]string{"b", "c", "d"}, left); diff != "" {
		t.Errorf("attachments (-want +got):\n%s", diff)
	}
	if links, _ := w.kernel.Existing(); !links[host("b")] || !links[host("c")] || len(links) != 3 {
		t.Errorf("host interfaces: %v", links)
	}
	for name := range w.kernel.pods {
		w.kernel.end(name)
	}
	clear(w.kernel.host)
	if _, err := w.Reconcile(t.Context()); err != nil { // after a reboot
		t.Error(err)
	}
	if got := w.snapshot(); len(got) != 0 {
		t.Errorf("left after a reboot: %v", got)
	}
}
