// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// testNeutronCommand asks the coelan command about Neutron. The UUIDs that it names are those that
// Neutron has, and OVN follows a packet by them.
func testNeutronCommand(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	world.healthy(ctx, t)
	coelan := func(args ...string) string {
		t.Helper()
		out, err := world.coelan(ctx, args...)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"worker2: ready", "Neutron: http://", " works since ", "network: ", "port: "}},
		{[]string{"check"}, []string{"Neutron: ", " resources, 0 findings", "OVN: ", " rows, 0 findings"}},
	} {
		rest := coelan(c.args...)
		for _, text := range c.want {
			_, after, found := strings.Cut(rest, text)
			if !found {
				t.Errorf("%v: %q is missing, or not where it should be: %s", c.args, text, rest)
			}
			rest = after
		}
	}
	network, err := openStack(ctx, "network", "show", "net-default", "-f", "value", "-c", "id")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := neutronOf(t, coelan("get", "networks", "--node", worker1), "default"), strings.TrimSpace(string(network)); got != want {
		t.Errorf("the Network default is %s, and in Neutron %s", got, want)
	}
	ports, err := portsByAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, server := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web2")
	list := coelan("get", "ports")
	for _, p := range []place{client, server} {
		if got, want := neutronOf(t, list, p.address(ipv4).String()+"/"), ports[p.address(ipv4)]; got != want {
			t.Errorf("%s has the port %s, and in Neutron %s", p.name, got, want)
		}
	}
	for _, f := range families {
		args := []string{"trace", "-n", namespace, "client1", "web2:8080"}
		if f == ipv6 {
			args = append(args, "--ipv6")
		}
		out := coelan(args...)
		_, command, found := strings.Cut(out, "\n    ovn-trace ")
		if !found || !strings.Contains(command, ports[client.address(f)]) {
			t.Errorf("no command with the port %s: %s", ports[client.address(f)], out)
			continue
		}
		followed, err := world.Exec(ctx, control, "sh", "-c", "ovn-trace --no-friendly-names "+command)
		if to := fmt.Sprintf("output to %q", ports[server.address(f)]); err != nil || !strings.Contains(string(followed), to) {
			t.Errorf("%s: %v, and not %s:\n%s", command, err, to, followed)
		}
	}
}

// portsByAddress are the UUIDs of Neutron's ports.
func portsByAddress(ctx context.Context) (map[netip.Addr]string, error) {
	ports, err := openStackPorts(ctx)
	ids := map[netip.Addr]string{}
	for _, p := range ports {
		for _, fixed := range p.Listed {
			ids[fixed.Address] = p.ID
		}
	}
	return ids, err
}

// neutronOf is the last column, NEUTRON, of the first row that has a text.
func neutronOf(t *testing.T, table, text string) string {
	t.Helper()
	lines := strings.Split(table, "\n")
	if !strings.HasSuffix(strings.TrimSpace(lines[0]), "NEUTRON") {
		t.Errorf("no column NEUTRON: %s", table)
		return ""
	}
	for _, line := range lines[1:] {
		if fields := strings.Fields(line); strings.Contains(line, text) {
			return fields[len(fields)-1]
		}
	}
	t.Errorf("no row with %s: %s", text, table)
	return ""
}
