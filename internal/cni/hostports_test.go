// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

func withHostPorts(name, mappings string) wire.Request {
	r := addRequest(name)
	r.Config = []byte(strings.TrimSuffix(config, "}") +
		`,"capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":` + mappings + `}}`)
	return r
}

// TestHostPorts has what the runtime asks for be recorded with the pod's first interface.
func TestHostPorts(t *testing.T) {
	w := newWorld(t)
	add := withHostPorts("a", `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},
		{"hostPort":53,"containerPort":5353,"protocol":"UDP","hostIP":"192.0.2.1"},
		{"hostPort":7000,"containerPort":7000,"protocol":"sctp","hostIP":"::"},
		{"hostPort":0,"containerPort":9000}]`)
	w.must(add)
	w.must(add)
	at, ok := w.store.Get(attachment.Key{ContainerID: "a", IfName: "eth0"})
	want := []attachment.HostPort{
		{Protocol: intent.TCP, HostPort: 8080, Port: 80},
		{Protocol: intent.UDP, HostPort: 53, Port: 5353, HostIP: netip.MustParseAddr("192.0.2.1")},
		{Protocol: intent.SCTP, HostPort: 7000, Port: 7000, HostIP: netip.IPv6Unspecified()},
	}
	if diff := cmp.Diff(want, at.HostPorts, cmpopts.EquateComparable(netip.Addr{})); !ok || diff != "" {
		t.Errorf("recorded: %t (-want +got):\n%s", ok, diff)
	}
	// The configuration of an older agent, which the runtime may have kept, says
	// nothing of host ports.
	w.must(as("DEL", addRequest("a")))
}

func TestBadHostPorts(t *testing.T) {
	for _, tc := range []struct{ name, mappings, ifName, want string }{
		{"not a list", `{}`, "eth0", "runtimeConfig"},
		{"port too high", `[{"hostPort":65536,"containerPort":80}]`, "eth0", "portMappings[0]: hostPort 65536 is not between"},
		{"negative", `[{"hostPort":-1,"containerPort":80}]`, "eth0", "hostPort -1 is not between"},
		{"no container port", `[{"hostPort":80}]`, "eth0", "containerPort 0 is not between"},
		{"protocol", `[{"hostPort":80,"containerPort":80,"protocol":"icmp"}]`, "eth0", `protocol "icmp" is not tcp, udp or sctp`},
		{"address", `[{"hostPort":80,"containerPort":80,"hostIP":"node"}]`, "eth0", `hostIP "node" is not an address`},
		{"zone", `[{"hostPort":80,"containerPort":80,"hostIP":"fe80::1%eth0"}]`, "eth0", "is not an address"},
		{"Coelan's own", `[{"hostPort":80,"containerPort":80},{"hostPort":4789,"containerPort":80,"protocol":"udp"}]`, "eth0",
			"portMappings[1]: UDP port 4789 of the node is Coelan's own"},
		{"another interface", `[{"hostPort":80,"containerPort":80}]`, "net1", "another one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.Reserved = func(p intent.Protocol, port uint16) bool { return p == intent.UDP && port == 4789 }
			add := withHostPorts("a", tc.mappings)
			add.IfName = tc.ifName
			_, err := w.Handle(t.Context(), add)
			if err == nil || err.Code != wire.CodeInvalidConfig || !strings.Contains(err.Msg+": "+err.Details, tc.want) {
				t.Errorf("%+v, want %q", err, tc.want)
			}
			if n := len(w.store.List()); n != 0 {
				t.Errorf("%d attachments", n)
			}
		})
	}
}
