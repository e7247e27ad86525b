// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/test/lab/probe"
)

// controllerPort is where controllers serve agents.
const controllerPort = 10363

// attackNode has pods use the nodes: by ports of Coelan's own, by host ports and node ports of pods
// that are closed for them, by addresses that a Service claims, and by kubelet's port.
func attackNode(t *testing.T) {
	for _, s := range []step{
		{"Coelan's own ports", attackOwnPorts},
		{"ways around a policy", attackDetours},
		{"addresses of others", attackExternalIPs},
		{"kubelet", attackKubelet},
		{"metadata", attackMetadata},
	} {
		t.Run(s.name, s.run)
	}
}

// attackOwnPorts has pods connect to the port at which controllers serve agents. The control is a
// connection from another node.
func attackOwnPorts(t *testing.T) {
	ctx := within(t, time.Minute)
	pods, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("controllers: %d, %v", len(pods.Items), err)
	}
	own := pods.Items[0].Spec.NodeName
	other := map[string]string{worker1: worker2, worker2: worker1, control: worker1}[own]
	for _, f := range families {
		at := netip.AddrPortFrom(world.nodeAddress(ctx, t, own, f), controllerPort).String()
		connect := func(from place) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return from.Do(func() error {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
				if err == nil {
					c.Close()
				}
				return err
			})
		}
		var group sync.WaitGroup
		for _, from := range []place{
			world.pod(ctx, t, "client1"), world.pod(ctx, t, "client2"), world.tenant(ctx, t, "red/client1"),
			world.machine(ctx, t, "fabric"),
		} {
			group.Go(func() {
				if connect(from) == nil {
					t.Errorf("%s connects to the controller at %s", from.name, at)
				}
			})
		}
		group.Wait()
		if err := connect(world.machine(ctx, t, other)); err != nil {
			t.Errorf("control: node %s does not connect to the controller: %v", other, err)
		}
	}
}

// attackDetours has pods reach a server that a policy closes by its host port and its node port,
// from its own node and from another one. Without the policy they reach it.
func attackDetours(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	near, far := world.pod(ctx, t, "client1"), world.pod(ctx, t, "client2")
	clients := []place{near, far, world.tenant(ctx, t, "red/client1")}
	node1, node2 := world.machine(ctx, t, worker1), world.machine(ctx, t, worker2)
	type way struct {
		name string
		from place
		at   netip.AddrPort
	}
	var ways []way
	for _, f := range families {
		at := func(node place, port uint16) netip.AddrPort { return netip.AddrPortFrom(node.address(f), port) }
		for _, from := range clients {
			ways = append(ways,
				way{"the host port", from, at(node1, 8090)},
				way{"the node port of its node", from, at(node1, 30080)},
				way{"the node port of another node", from, at(node2, 30080)},
			)
		}
		service := netip.AddrPortFrom(world.serviceAddress(ctx, t, "web1", f), 80)
		ways = append(ways, way{"the Service", near, service}, way{"the Service", far, service})
	}
	each := func(do func(way, question)) {
		var group sync.WaitGroup
		for _, w := range ways {
			group.Go(func() { do(w, question{corev1.ProtocolTCP, w.at}) })
		}
		group.Wait()
	}
	open := func() { each(func(w way, q question) { q.answers(ctx, t, w.from) }) }
	open()
	t.Run("closed", func(t *testing.T) {
		policyIn(ctx, t, namespace, "closed", "podSelector: {matchLabels: {server: web1}}, policyTypes: [Ingress]")
		each(func(w way, q question) { q.fails(ctx, t, w.from, silent) })
		each(func(w way, q question) {
			if answer, err := q.ask(ctx, w.from, "hostname"); err == nil {
				t.Errorf("%s reaches the server by %s, %s: %s answers", w.from.name, w.name, q, answer)
			}
		})
	})
	open()
}

// attackExternalIPs has a tenant's Service claim addresses that are others': a web server outside,
// a node's and another tenant's. Clients of these addresses still reach the owner. That the Service
// itself works is the control.
func attackExternalIPs(t *testing.T) {
	ctx := within(t, time.Minute)
	red := world.tenant(ctx, t, "red/client1")
	host := world.pod(ctx, t, "host1")
	claimed := []string{}
	for _, f := range families {
		claimed = append(claimed, outside(f).String(), host.address(f).String())
	}
	s := makeService(ctx, t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "red"},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Selector:       map[string]string{"app": "web"}, ExternalIPs: claimed,
			Ports: []corev1.ServicePort{
				{Name: "web", Port: 80, TargetPort: intstr.FromInt32(webPort)}, {Name: "host", Port: 8082, TargetPort: intstr.FromInt32(webPort)},
			},
		},
	})
	for _, f := range families {
		clusterIP(t, s, f, corev1.ProtocolTCP).answers(ctx, t, red)
		for _, from := range []place{
			world.pod(ctx, t, "client1"), world.pod(ctx, t, "client2"), world.machine(ctx, t, worker2), world.machine(ctx, t, control),
		} {
			for _, at := range []netip.AddrPort{netip.AddrPortFrom(outside(f), 80), netip.AddrPortFrom(host.address(f), 8082)} {
				name, err := get(ctx, from, at, "/hostname")
				if err != nil || name == "web1" || name == "web2" {
					t.Errorf("%s asks %s: %q, %v; want its owner's answer", from.name, at, name, err)
				}
			}
		}
	}
}

// attackKubelet has a pod ask kubelets, by its node's address and in the name of this machine
// itself. They answer authenticated clients only: the API server is the control.
func attackKubelet(t *testing.T) {
	ctx := within(t, time.Minute)
	from := world.pod(ctx, t, "client1")
	for _, node := range []string{worker1, worker2} {
		if _, err := world.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/pods"); err != nil {
			t.Errorf("control: the API server asks the kubelet of %s: %v", node, err)
		}
		for _, f := range families {
			for _, host := range []string{"", "localhost", "127.0.0.1:10250", "169.254.169.254"} {
				status, err := rawGet(ctx, from, netip.AddrPortFrom(world.nodeAddress(ctx, t, node, f), 10250), host)
				if err == nil && status != http.StatusUnauthorized && status != http.StatusForbidden {
					t.Errorf("kubelet of %s answers %d to a pod that calls it %q", node, status, host)
				}
			}
		}
	}
}

// attackMetadata has a pod ask the address at which clouds tell nodes their secrets, in
// spite of a policy that leaves just that out. The node reaches the server, and the pod the
// rest of the outside.
func attackMetadata(t *testing.T) {
	ctx := within(t, time.Minute)
	node, from := world.machine(ctx, t, worker1), world.pod(ctx, t, "client1")
	at := netip.MustParseAddrPort("169.254.169.254:80")
	node.run(ctx, t, "ip", "addr", "add", at.Addr().String()+"/32", "dev", "lo")
	t.Cleanup(func() {
		node.run(context.WithoutCancel(ctx), t, "ip", "addr", "del", at.Addr().String()+"/32", "dev", "lo")
	})
	server, err := probe.Serve(node, at, probe.WhoAmI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	ask := func(from place) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := probe.Seen(ctx, from, at)
		return err
	}
	policyIn(ctx, t, namespace, "metadata",
		"podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}}]}]")
	inEffect, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	answers := errors.New("the server answers")
	if err := eventually(inEffect, func() error {
		if ask(from) == nil {
			return answers
		}
		return nil
	}); err != nil || ask(from) == nil {
		t.Errorf("%s asks %s: %v", from.name, at, cmp.Or(err, answers))
	}
	if err := ask(node); err != nil {
		t.Errorf("control: the node asks %s: %v", at, err)
	}
	question{corev1.ProtocolTCP, netip.AddrPortFrom(outside(ipv4), 80)}.answers(ctx, t, from)
}

// rawGet asks a server over TLS for its pods, calling it host.
func rawGet(ctx context.Context, from place, server netip.AddrPort, host string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tlsTransport := transport(from)
	tlsTransport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // a pod would not care
	client := http.Client{Transport: tlsTransport}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/pods", server), nil)
	if err != nil {
		return 0, err
	}
	request.Host = host
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}
