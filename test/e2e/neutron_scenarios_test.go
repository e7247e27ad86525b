// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
)

// testNeutronInterfaces gives pods further interfaces, each with a port of Neutron: by the names of
// Networks, as OVN4NFV has them, and by the UUID of a subnet, as Kuryr has it.
func testNeutronInterfaces(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	if err := world.DefineAttachments(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "-n", namespace, "network-attachment-definitions.k8s.cni.cncf.io", "--all")
		remove(ctx, t, "networks.coelan.io", "side", "second", "tiny")
	})
	apply(ctx, t, attachments)
	t.Run("attachments", testAttachments)
	t.Run("OVN4NFV", testNFN)
	t.Run("subnet of Neutron", testNeutronSubnet)
}

// testNeutronSubnet asks for an interface on a subnet by its UUID.
func testNeutronSubnet(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	var subnet string
	err := wait(ctx, named(&v1alpha1.Network{}, "side"), func(n *v1alpha1.Network) error {
		if n.Status.Neutron == nil || len(n.Status.Neutron.Subnets) == 0 {
			return errors.New("no UUIDs yet")
		}
		subnet = n.Status.Neutron.Subnets[0].ID
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: by-subnet, namespace: e2e, annotations: {openstack.org/kuryr-config: '{"subnetId": %q}'}}
`, subnet))
	makePod(ctx, t, annotated(webServer("by1", worker1), networksAnnotation, "by-subnet"))
	makePod(ctx, t, annotated(webServer("by2", worker2), networksAnnotation, "by-subnet"))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "by1", "by2") })
	if err := world.waitReady(ctx, "by1", "by2"); err != nil {
		t.Fatal(err)
	}
	from, to := world.pod(ctx, t, "by1"), world.pod(ctx, t, "by2")
	addresses := to.on(t, "net1")
	if len(addresses) != 1 {
		t.Fatalf("net1 has %v, want one address of the subnet", addresses)
	}
	port, err := portAt(ctx, addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	if mac := to.mac(t, "net1"); port.MAC != mac || len(port.Fixed) != 1 || port.Fixed[0].Subnet != subnet {
		t.Errorf("net1 has the MAC %s; its port, which should be of subnet %s alone, is %+v", mac, subnet, port)
	}
	if _, err := clientOf(ctx, from, netip.AddrPortFrom(addresses[0], webPort)); err != nil {
		t.Error(err)
	}
}

// shownPort is a port as `openstack port show` has it.
type shownPort struct {
	ID      string             `json:"id"`
	Project string             `json:"project_id"`
	MAC     string             `json:"mac_address"`
	Status  string             `json:"status"`
	Fixed   []openStackAddress `json:"fixed_ips"`
}

// portAt is the port of Neutron that has an address.
func portAt(ctx context.Context, address netip.Addr) (port shownPort, err error) {
	ports, err := openStackPorts(ctx, "--fixed-ip", "ip-address="+address.String())
	if err == nil && len(ports) != 1 {
		err = fmt.Errorf("%d ports have %s", len(ports), address)
	}
	if err != nil {
		return port, err
	}
	out, err := openStack(ctx, "port", "show", ports[0].ID, "-f", "json")
	if err != nil {
		return port, err
	}
	return port, json.Unmarshal(out, &port)
}

// tenantProject is a project of OpenStack. Without keystone any name is one.
const tenantProject = "of-a-tenant"

const projectObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: project, annotations: {openstack.org/kuryr-project: of-a-tenant}}
---
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: project}
spec:
  role: Primary
  router: default
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: project}}
  subnets: [{cidr: 10.63.0.0/24}, {cidr: "fd00:63::/64"}]
`

// testNeutronProject has a namespace name a project: what is made for it is there, its pods are
// reached as any, and nothing of it is left.
func testNeutronProject(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	allowProject(ctx, t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "namespace", "project")
		remove(ctx, t, "networks.coelan.io", "project")
	})
	apply(ctx, t, projectObjects)
	network := named(&v1alpha1.Network{}, "project")
	if err := wait(ctx, network, func(n *v1alpha1.Network) error {
		if n.Status.Neutron == nil {
			return errors.New("no UUID yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out, err := openStack(ctx, "network", "show", network.Status.Neutron.ID, "-f", "value", "-c", "project_id")
	if err != nil || strings.TrimSpace(string(out)) != tenantProject {
		t.Errorf("the network is of the project %q, %v; want %s", out, err, tenantProject)
	}
	makePod(ctx, t, webServer("project/web1", worker1))
	makePod(ctx, t, webServer("project/web2", worker2))
	if err := world.waitReady(ctx, "project/web1", "project/web2"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"project/web1", "project/web2"} {
		for _, address := range world.pod(ctx, t, name).addresses {
			if err := eventually(ctx, func() error { // Neutron learns from OVN that a port is up
				port, err := portAt(ctx, address)
				if err == nil && (port.Project != tenantProject || port.Status != "ACTIVE") {
					err = fmt.Errorf("it is %+v; want one of %s that is ACTIVE", port, tenantProject)
				}
				return err
			}); err != nil {
				t.Errorf("the port of %s at %s: %v", name, address, err)
			}
		}
	}
	if err := eventually(ctx, func() error {
		return errors.Join(ask(ctx, t, "project/web1", "project/web2"), ask(ctx, t, "client2", "project/web1"), ask(ctx, t, "project/web2", "web1"))
	}); err != nil {
		t.Error(err)
	}
	endpoint, err := openStackEndpoint(ctx, neutronAPI)
	if err != nil {
		t.Fatal(err)
	}
	removePods(ctx, t, "project/web1", "project/web2")
	remove(ctx, t, "networks.coelan.io", "project")
	if err := eventually(ctx, func() error {
		var errs []error
		for _, kind := range []string{"ports", "subnets", "networks"} {
			// Without keystone the command openstack does not find a project.
			out, err := world.Exec(ctx, control, "curl", "-sS", endpoint+"/v2.0/"+kind+"?fields=id&project_id="+tenantProject)
			if want := fmt.Sprintf(`{"%s":[]}`, kind); err != nil || strings.ReplaceAll(string(out), " ", "") != want {
				errs = append(errs, fmt.Errorf("%s, %w; want none", out, err))
			}
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
}

// allowProject has the controllers let the namespace project ask for tenantProject, until the end
// of the test.
func allowProject(ctx context.Context, t *testing.T) {
	t.Helper()
	patch := func(ctx context.Context, operation string) {
		t.Helper()
		for _, args := range [][]string{
			{"patch", "deployment", "coelan-controller", "--type=json", "-p", operation},
			{"rollout", "status", "deployment/coelan-controller", "--timeout=2m"},
		} {
			if _, err := world.Kubectl(ctx, append([]string{"-n", agents}, args...)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	args, err := world.Kubectl(ctx, "-n", agents, "get", "deployment", "coelan-controller",
		"-o", "jsonpath={.spec.template.spec.containers[0].args}")
	if err != nil {
		t.Fatal(err)
	}
	const path = `"path": "/spec/template/spec/containers/0/args`
	patch(ctx, fmt.Sprintf(`[{"op": "add", %s/-", "value": "--neutron-projects=%s=project"}]`, path, tenantProject))
	t.Cleanup(func() {
		patch(context.WithoutCancel(ctx), fmt.Sprintf(`[{"op": "replace", %s", "value": %s}]`, path, args))
	})
}

// testNeutronReadyPorts has a crowd of pods go and come again: no port is made for those that come,
// nor deleted for those that go.
func testNeutronReadyPorts(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	awaitReadyPorts(ctx, t)
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("wave%d", i))
	}
	wave := func() {
		t.Helper()
		for i, name := range names {
			makePod(ctx, t, webServer(name, []string{worker1, worker2}[i%2]))
		}
		if err := world.waitReady(ctx, names...); err != nil {
			t.Fatal(err)
		}
	}
	clean := func(ctx context.Context) { removePods(ctx, t, names...) }
	t.Cleanup(func() { clean(context.WithoutCancel(ctx)) })
	wave()
	before, err := settledPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	clean(ctx)
	wave()
	for _, name := range names {
		if err := ask(ctx, t, "client1", name); err != nil {
			t.Error(err)
		}
	}
	after, err := settledPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("ports were %v, and after the pods came again %v", before, after)
	}
}

// settledPorts are the UUIDs of Neutron's ports, in order, once they stay the same from one check
// of the controller to the next.
func settledPorts(ctx context.Context) (ids []string, err error) {
	err = eventually(ctx, func() error {
		// A check compares everything with what is wanted now.
		if out, err := world.coelan(ctx, "check"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		ports, err := openStackPorts(ctx)
		if err != nil {
			return err
		}
		last := ids
		ids = nil
		for _, p := range ports {
			ids = append(ids, p.ID)
		}
		slices.Sort(ids)
		if !slices.Equal(last, ids) {
			return fmt.Errorf("ports come or go: there were %d, and are %d", len(last), len(ids))
		}
		return nil
	})
	return ids, err
}
