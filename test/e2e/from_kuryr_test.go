// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/neutronserver"
	"coelan.io/coelan/internal/sandbox"
)

// What Kuryr has made of a namespace with a pod.
const (
	kuryrSubnet  = "10.61.0.0/24"
	kuryrAddress = "10.61.0.20"
	kuryrMAC     = "fa:16:3e:61:00:20"
)

const kuryrKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kuryr%[1]ss.openstack.org}
spec:
  group: openstack.org
  scope: Namespaced
  names: {plural: kuryr%[1]ss, singular: kuryr%[1]s, kind: Kuryr%[2]s}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestFromKuryr moves a namespace, as docs/operate/from-kuryr.md says, with the network, the router
// and the port that Kuryr had made for it in a real Neutron: BACKEND=neutron make e2e
// RUN='^TestFromKuryr$'. The pod starts with the port that it had on its node, is reached, and
// what was Kuryr's goes with the pod and the Network that have it. So does the floating IP of the
// Service's load balancer, with the FloatingIP.
func TestFromKuryr(t *testing.T) {
	if backend != sandbox.NeutronBackend {
		t.Skip("BACKEND=neutron chooses the backend that this is about")
	}
	ctx := within(t, 8*time.Minute)
	clean := func(undo func(context.Context)) { t.Cleanup(func() { undo(context.WithoutCancel(ctx)) }) }
	clean(func(ctx context.Context) {
		remove(ctx, t, "namespace", "moved")
		remove(ctx, t, "networks.coelan.io", "moved", "public")
		remove(ctx, t, "crd", "kuryrnetworks.openstack.org", "kuryrports.openstack.org", "kuryrloadbalancers.openstack.org")
	})
	t.Cleanup(func() { // before these are removed, with their Events
		if t.Failed() {
			world.report(t)
		}
	})
	apply(ctx, t, fmt.Sprintf(kuryrKinds, "network", "Network"))
	apply(ctx, t, fmt.Sprintf(kuryrKinds, "port", "Port"))
	apply(ctx, t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: moved}\n")
	if _, err := world.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "kuryrnetworks.openstack.org", "kuryrports.openstack.org"); err != nil {
		t.Fatal(err)
	}

	// Kuryr's part.
	network := makeInNeutron(ctx, t, "network", `"name": "ns/moved-net"`)
	subnet := makeInNeutron(ctx, t, "subnet", fmt.Sprintf(`"name": "ns/moved-subnet", "network_id": %q, "ip_version": 4, "cidr": %q, "enable_dhcp": false`,
		network, kuryrSubnet))
	router := makeInNeutron(ctx, t, "router", `"name": "kuryr"`)
	clean(func(ctx context.Context) {
		_, _ = openStack(ctx, "router", "remove", "subnet", router, subnet) // it may have none
		_, _ = openStack(ctx, "router", "delete", router)
	})
	if _, err := openStack(ctx, "router", "add", "subnet", router, subnet); err != nil {
		t.Fatal(err)
	}
	pod := webServer("moved/web", "")
	pod.Spec.SchedulerName = "kuryrs" // it has a node when Kuryr has made its port
	// Its node reaches it when the subnet has left Kuryr's router: until then nothing restarts it.
	pod.Spec.Containers[0].LivenessProbe = nil
	made, err := world.api.CoreV1().Pods("moved").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := makeInNeutron(ctx, t, "port", fmt.Sprintf(`"name": "moved/web", "network_id": %q, "mac_address": %q, "device_owner": "compute:kuryr",
		"device_id": %q, "binding:host_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`,
		network, kuryrMAC, made.UID, worker1, subnet, kuryrAddress))
	applyJSON(ctx, t, map[string]any{
		"apiVersion": "openstack.org/v1", "kind": "KuryrNetwork", "metadata": map[string]any{"name": "moved", "namespace": "moved"},
		"status": map[string]any{"netId": network, "subnetId": subnet, "subnetCIDR": kuryrSubnet, "routerId": router},
	})
	applyJSON(ctx, t, map[string]any{
		"apiVersion": "openstack.org/v1", "kind": "KuryrPort", "metadata": map[string]any{"name": "web", "namespace": "moved"},
		"spec":   map[string]any{"podUid": string(made.UID), "podNodeName": worker1},
		"status": map[string]any{"vifs": map[string]any{"eth0": map[string]any{"default": true, "vif": kuryrVIF(port, network)}}},
	})
	balancer := newKuryrBalancer(ctx, t)

	// The administrator's part.
	apply(ctx, t, `
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: moved, annotations: {coelan.io/kuryr-network: moved}}
spec:
  role: Primary
  router: default
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: moved}}
  subnets: [{cidr: 10.61.0.0/24, gateway: 10.61.0.1, exclusions: [10.61.0.2-10.61.0.99]}]
`)
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: corev1.ObjectReference{Kind: "Node", Name: worker1}}
	if err := world.api.CoreV1().Pods("moved").Bind(ctx, bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makePod(ctx, t, sleeper("moved/near", worker2))
	if err := eventually(ctx, func() error { return adopted(ctx, port, "moved/web.eth0") }); err != nil {
		t.Fatal(err)
	}
	if _, err := openStack(ctx, "router", "remove", "subnet", router, subnet); err != nil {
		t.Fatal(err)
	}
	if err := world.waitReady(ctx, "moved/web", "moved/near"); err != nil {
		t.Fatal(err)
	}
	web := world.pod(ctx, t, "moved/web")
	if web.address(ipv4) != netip.MustParseAddr(kuryrAddress) {
		t.Errorf("the pod has %v, and had %s", web.addresses, kuryrAddress)
	}
	at := netip.AddrPortFrom(web.address(ipv4), webPort)
	for _, w := range []way{
		{name: "of the network", from: world.pod(ctx, t, "moved/near"), server: at},
		{name: "of another network", from: world.pod(ctx, t, "client2"), server: at},
		{name: "to another network", from: web, server: netip.AddrPortFrom(world.pod(ctx, t, "web1").address(ipv4), webPort)},
	} {
		w.service = true // nothing tells when all nodes know of the router
		t.Run(w.name, func(t *testing.T) { w.check(ctx, t) })
	}
	balancer.moves(ctx, t)

	removePods(ctx, t, "moved/web", "moved/near")
	remove(ctx, t, "namespace", "moved")
	remove(ctx, t, "networks.coelan.io", "moved", "public")
	for what, id := range map[string]string{"port": port, "subnet": subnet, "network": network, "floating ip": balancer.floating} {
		if err := eventually(ctx, func() error {
			if _, err := openStack(ctx, append(strings.Fields(what), "show", id)...); err == nil || !strings.Contains(err.Error(), "No ") {
				return fmt.Errorf("the %s %s is still there, or not asked for: %w", what, id, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	world.healthy(ctx, t)
}

// makeInNeutron makes a resource of the cluster's project, which is no cluster's, and returns its
// id.
func makeInNeutron(ctx context.Context, t *testing.T, kind, attributes string) (id string) {
	t.Helper()
	body := fmt.Sprintf(`{%q: {"project_id": %q, %s}}`, kind, neutronserver.Project, attributes)
	endpoint, err := openStackEndpoint(ctx, neutronAPI)
	if err != nil {
		t.Fatal(err)
	}
	out, err := world.Exec(ctx, control, "curl", "-sS", "-d", body, endpoint+"/v2.0/"+kind+"s")
	if err != nil {
		t.Fatal(err)
	}
	var made map[string]map[string]any
	if err := json.Unmarshal(out, &made); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if id, _ = made[kind]["id"].(string); id == "" {
		t.Fatalf("%s: %s", kind, out)
	}
	return id
}

func applyJSON(ctx context.Context, t *testing.T, object map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, string(data))
}

// kuryrVIF is how Kuryr notes the interface of the pod.
func kuryrVIF(port, network string) any {
	object := func(name string, data map[string]any) map[string]any {
		return map[string]any{"versioned_object.name": name, "versioned_object.data": data}
	}
	list := func(name string, one map[string]any) map[string]any {
		return object(name, map[string]any{"objects": []any{one}})
	}
	address := list("FixedIPList", object("FixedIP", map[string]any{"address": kuryrAddress}))
	subnets := list("SubnetList", object("Subnet", map[string]any{"cidr": kuryrSubnet, "ips": address}))
	return object("VIFOpenVSwitch", map[string]any{
		"id": port, "address": kuryrMAC, "network": object("Network", map[string]any{"id": network, "subnets": subnets}),
	})
}

// adopted says why a port of OpenStack is not that of a Port.
func adopted(ctx context.Context, id, object string) error {
	out, err := openStack(ctx, "port", "show", "-f", "json", id)
	if err != nil {
		return err
	}
	var port struct {
		Description string
		MAC         string `json:"mac_address"`
	}
	if err := json.Unmarshal(out, &port); err != nil {
		return err
	}
	if !strings.HasSuffix(port.Description, "/Port/"+object) || port.MAC != kuryrMAC {
		return fmt.Errorf("port %s has the description %q and the MAC %s", id, port.Description, port.MAC)
	}
	return nil
}
