// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/safchain/ethtool"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab/probe"
)

// officeCard is the card of each node that is connected to the external Network, of which the
// fabric is the gateway. The fabric has no route to pods.
const officeCard = "office0"

// officeLink is the fabric's interface on the external Network.
const officeLink = "office"

var officeGateway = map[family]netip.Prefix{
	ipv4: netip.MustParsePrefix("198.51.100.1/24"), ipv6: netip.MustParsePrefix("2001:db8:70::1/64"),
}

const officeNetwork = `
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: office}
spec:
  type: Flat
  physicalNetwork: office
  external: true
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [e2e, red]}]}
  subnets:
  - {cidr: 198.51.100.0/24, gateway: 198.51.100.1, ranges: [{from: 198.51.100.100, to: 198.51.100.149}]}
  - {cidr: "2001:db8:70::/64", gateway: "2001:db8:70::1"}
`

// officeConnections is how many connections the nodes remember for each private Router, and for
// each gateway, while they are connected: few enough that one pod can have them all.
const officeConnections = 2000

// officeSettings are lines of the agents' settings, and what they are while nodes are connected.
var officeSettings = map[string]string{
	"uplinks: {}\n":     "uplinks: {office: {interface: " + officeCard + "}}\n",
	"maxPerRouter: 0\n": fmt.Sprintf("maxPerRouter: %d\n", officeConnections),
}

// useOffice has the external Network until the test ends. Tests that follow each other share the
// connection of the nodes, for which all agents start anew; leaveOffice ends it.
func useOffice(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := world.connectOffice(ctx); err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, officeNetwork)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "vnet", "office") })
}

// leaveOffice is a step of tests to which nodes without an external Network matter: when a node
// boots, its card is gone.
func leaveOffice(t *testing.T) {
	if err := world.disconnectOffice(within(t, upTimeout)); err != nil {
		t.Fatal(err)
	}
}

// connectOffice connects a card of each node with the fabric, and gives the agents the setting for
// it, unless that has been done.
func (c *cluster) connectOffice(ctx context.Context) error {
	if c.inOffice {
		return nil
	}
	c.inOffice = true
	fabric := c.netns("fabric")
	// Without a MAC of its own a bridge has that of one of its ports, which come and go.
	commands := []string{"ip link add office address 02:c0:e1:00:01:01 type bridge", "ip link set office up"}
	for _, f := range families {
		commands = append(commands, "ip addr add "+officeGateway[f].String()+" dev office"+map[family]string{ipv6: " nodad"}[f])
	}
	for _, command := range commands {
		if err := fabric.exec(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	if err := checksumInSoftware(fabric, officeLink); err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if err := c.plugOffice(ctx, node); err != nil {
			return err
		}
	}
	return c.changeSettings(ctx, officeSettings)
}

// plugOffice gives a node its card, which it has lost if its power was cut.
func (c *cluster) plugOffice(ctx context.Context, node string) error {
	fabric, at := c.netns("fabric"), c.netns(node)
	_ = c.unplugOffice(ctx, node) // the card of the last boot may be there yet
	for _, command := range []string{
		fmt.Sprintf("ip link add %s master office type veth peer name %s netns %d", officeLinkOf(node), officeCard, c.PID(node)),
		"ip link set " + officeLinkOf(node) + " up",
	} {
		if err := fabric.exec(ctx, strings.Fields(command)...); err != nil {
			return err
		}
	}
	if err := at.exec(ctx, "ip", "link", "set", officeCard, "up"); err != nil {
		return err
	}
	return errors.Join(checksumInSoftware(at, officeCard), checksumInSoftware(fabric, officeLinkOf(node)))
}

// unplugOffice takes a node's card away.
func (c *cluster) unplugOffice(ctx context.Context, node string) error {
	return c.netns("fabric").exec(ctx, "ip", "link", "delete", officeLinkOf(node))
}

// officeLinkOf is the fabric's end of a node's card.
func officeLinkOf(node string) string { return "office-" + node }

// awaitOffice waits until a node says that it is connected to the external Network, or that it is
// not.
func (c *cluster) awaitOffice(ctx context.Context, node string, connected bool) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	return eventually(ctx, func() error {
		n, err := c.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		says := n.Annotations[v1alpha1.AnnotationPhysicalNetworks]
		if slices.Contains(strings.Split(says, ","), "office") != connected {
			return fmt.Errorf("node %s is connected to %q", node, says)
		}
		return nil
	})
}

// disconnectOffice undoes what connectOffice has done.
func (c *cluster) disconnectOffice(ctx context.Context) error {
	if !c.inOffice {
		return nil
	}
	c.inOffice = false
	before := map[string]string{}
	for was, is := range officeSettings {
		before[is] = was
	}
	if err := c.changeSettings(ctx, before); err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if err := c.unplugOffice(ctx, node); err != nil {
			return err
		}
	}
	return c.netns("fabric").exec(ctx, "ip", "link", "delete", officeLink)
}

// exec runs a program in the namespace.
func (p place) exec(ctx context.Context, args ...string) error {
	return p.Do(func() error {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %v: %w: %s", p.name, args, err, out)
		}
		return nil
	})
}

// checksumInSoftware has the kernel compute checksums of what it sends by an interface: the
// userspace datapath at the other end reads frames as they are.
func checksumInSoftware(at place, link string) error {
	err := at.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(link, map[string]bool{"tx-checksum-ip-generic": false})
	})
	if err != nil {
		return fmt.Errorf("%s: %s: %w", at.name, link, err)
	}
	return nil
}

// changeSettings replaces lines of the agents' settings, and has all agents start with them.
func (c *cluster) changeSettings(ctx context.Context, lines map[string]string) error {
	settings, err := c.api.CoreV1().ConfigMaps(agents).Get(ctx, "coelan-config", metav1.GetOptions{})
	if err != nil {
		return err
	}
	text := settings.Data["agent.yaml"]
	for was, is := range lines {
		if !strings.Contains(text, was) {
			return fmt.Errorf("the agents' settings have no %q:\n%s", was, text)
		}
		text = strings.Replace(text, was, is, 1)
	}
	settings.Data["agent.yaml"] = text
	if _, err := c.api.CoreV1().ConfigMaps(agents).Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return c.roll(ctx)
}

// officeWire listens to what nodes send by the external Network.
func officeWire(t *testing.T) *probe.Wire {
	t.Helper()
	return wireOn(t, world.netns("fabric"), officeLink)
}

// onlyKnown reports packets that nodes have sent by the external Network, ARP and neighbor
// discovery too, with a source that is none of these addresses.
func onlyKnown(t *testing.T, w *probe.Wire, known ...netip.Addr) {
	t.Helper()
	strange := map[netip.Addr]int{}
	w.Frames(func(frame probe.Frame) bool {
		src, _ := frame.IPs()
		if src.IsValid() && !src.IsUnspecified() && !src.IsLinkLocalUnicast() && !slices.Contains(known, src) {
			strange[src]++
		}
		return false
	})
	if len(strange) > 0 {
		t.Errorf("packets with other sources than %v: %v", known, strange)
	}
}
