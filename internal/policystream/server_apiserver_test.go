// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package policystream

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

// kubelet makes tokens for pods.
type kubelet struct {
	api kubernetes.Interface
	dir string
}

// token is the file of one for a pod on that node.
func (k kubelet) token(t *testing.T, account, node, audience string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-" + node, Namespace: streamtest.Namespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	ctx := t.Context()
	made, err := k.api.CoreV1().Pods(streamtest.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		made, err = k.api.CoreV1().Pods(streamtest.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return k.write(t, account, authenticationv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: made.Name, UID: made.UID},
	})
}

func (k kubelet) write(t *testing.T, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	answer, err := k.api.CoreV1().ServiceAccounts(streamtest.Namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(k.dir, "token-*")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(answer.Status.Token); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// of is for calls that may fail.
func of[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// reachable is an address of this machine that is not on loopback, which the API
// takes for no endpoint.
func reachable(t *testing.T) string {
	t.Helper()
	for _, a := range of(net.InterfaceAddrs())(t) {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback ones, and the API takes no endpoints there")
	panic("unreachable")
}

// Two replicas and agents, as they find and know each other in a cluster.
func TestInCluster(t *testing.T) {
	api := of(kubernetes.NewForConfig(apitest.Start(t).REST))(t)
	ctx := t.Context()
	of(api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: streamtest.Namespace}}, metav1.CreateOptions{}))(t)
	for _, name := range []string{"coelan-agent", "coelan-controller", "other"} {
		of(api.CoreV1().ServiceAccounts(streamtest.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	for _, name := range []string{"a", "b", "c"} {
		of(api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	kubelet := kubelet{api, t.TempDir()}

	// Agents start before there is any controller, certificate or endpoint.
	watching, stopWatching := context.WithCancel(context.Background())
	t.Cleanup(stopWatching)
	options := func(node, token string) client.Options {
		return client.Options{
			Node: node, Namespace: streamtest.Namespace, Token: client.TokenFile(token), Log: slog.Default(),
			Controllers: client.Watch(watching, api, streamtest.Namespace, slog.Default()),
		}
	}
	tokenA := kubelet.token(t, "coelan-agent", "a", wire.Audience)
	a, _ := streamtest.StartAgent(t, options("a", tokenA))
	b, _ := streamtest.StartAgent(t, options("b", kubelet.token(t, "coelan-agent", "b", wire.Audience)))
	// A thief has stolen a's token, and claims to be b.
	thief, _ := streamtest.StartAgent(t, options("b", tokenA))

	hubs := map[string]*server.Hub{}
	stops := map[string]context.CancelFunc{}
	var addresses []string
	controllerToken := kubelet.token(t, "coelan-controller", "c", wire.Audience)
	host := reachable(t)
	for range 2 {
		l := of(net.Listen("tcp", net.JoinHostPort(host, "0")))(t)
		address := l.Addr().String()
		l.Close()
		published := policy.NewPublisher(policy.NewEngine())
		published.Update(fill)
		hub := server.NewHub(published)
		hub.Ready()
		run, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- server.New(server.Options{
				Hub: hub, Kubernetes: api, Namespace: streamtest.Namespace, BindAddress: address, TokenFile: controllerToken, Log: slog.Default(),
				Monitor: heartbeat.New(heartbeat.Bound),
			}).Start(run)
		}()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		hubs[address], stops[address] = hub, stop
		addresses = append(addresses, address)
	}
	publish(t, api, addresses)

	engine := policy.NewEngine()
	fill(engine)
	for agent, node := range map[*streamtest.Agent]string{a: "a", b: "b", thief: "a"} {
		agent.Await(t, "the view of node "+node, has(agent, engine.View(node)))
	}
	if v := thief.View(); v["subject "+intent.PodSubject("1")] == nil || v["subject "+intent.PodSubject("2")] != nil {
		t.Errorf("the token of a has read %v", v)
	}

	// Both controllers know on how many nodes the policy is in effect, wherever
	// the agents are connected.
	for _, address := range addresses {
		hub := hubs[address]
		timeout := time.After(20 * time.Second)
		for hub.ProgrammedNodes(ofPolicy("web")) != (server.ProgrammedNodes{Wanted: 2, Programmed: 2}) {
			select {
			case <-hub.ProgrammedChanged():
			case <-timeout:
				t.Fatalf("controller %s: %+v", address, hub.ProgrammedNodes(ofPolicy("web")))
			}
		}
	}

	// The one that has a's agent dies.
	dies := a.Status().Controller
	stops[dies]()
	a.Await(t, "another controller", func() bool { s := a.Status(); return s.Connected && s.Controller != dies })

	t.Run("tokens", func(t *testing.T) {
		alive := addresses[0]
		if alive == dies {
			alive = addresses[1]
		}
		gone := kubelet.token(t, "coelan-agent", "c", wire.Audience)
		if err := api.CoreV1().Pods(streamtest.Namespace).Delete(ctx, "coelan-agent-c", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		garbage := filepath.Join(t.TempDir(), "garbage")
		if err := os.WriteFile(garbage, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct{ file, want string }{
			"for the API server":    {kubelet.token(t, "coelan-agent", "a", "https://kubernetes.default.svc"), "Unauthenticated"},
			"of no pod":             {kubelet.write(t, "coelan-agent", authenticationv1.TokenRequestSpec{Audiences: []string{wire.Audience}}), "not bound to a pod"},
			"of another account":    {kubelet.token(t, "other", "a", wire.Audience), "not of an agent"},
			"of a controller":       {controllerToken, "only an agent"},
			"of a pod that is gone": {gone, "Unauthenticated"},
			"garbage":               {garbage, "Unauthenticated"},
			"no file":               {garbage + "-none", "no such file"},
		} {
			t.Run(name, func(t *testing.T) {
				o := options("a", tc.file)
				o.Controllers = only{o.Controllers, alive}
				log := newLog()
				o.Log = slog.New(log)
				x, _ := streamtest.StartAgent(t, o)
				deadline := time.After(20 * time.Second)
				for !strings.Contains(x.Status().LastError, tc.want) {
					select {
					case <-log.messages:
					case <-deadline:
						t.Fatalf("status %+v, want an error with %q", x.Status(), tc.want)
					}
				}
				if s := x.Status(); s.Complete || s.Received != 0 {
					t.Errorf("status %+v", s)
				}
			})
		}
	})

	secret := of(api.CoreV1().Secrets(streamtest.Namespace).Get(ctx, certs.Secret, metav1.GetOptions{}))(t)
	roots := of(api.CoreV1().ConfigMaps(streamtest.Namespace).Get(ctx, wire.ConfigMap, metav1.GetOptions{}))(t)
	if string(secret.Data[wire.RootsKey]) != roots.Data[wire.RootsKey] || strings.Contains(roots.Data[wire.RootsKey], "PRIVATE") {
		t.Errorf("the published authority is %q", roots.Data[wire.RootsKey])
	}
}

// only leaves one of the controllers.
type only struct {
	client.Controllers
	address string
}

func (o only) Current() ([]string, *x509.CertPool) {
	_, roots := o.Controllers.Current()
	return []string{o.address}, roots
}

// fill has a pod on each of two nodes, one policy for both, and one for each.
func fill(e *policy.Engine) {
	e.SetNamespace(policy.Namespace{Name: "default"})
	for uid, node := range map[string]string{"1": "a", "2": "b"} {
		e.SetEndpoint(policy.Endpoint{
			Key: intent.PodSubject(uid), Namespace: "default", Name: uid, Node: node, Labels: map[string]string{"node": node},
		})
	}
	for name, set := range map[string]labels.Set{"web": nil, "on-a": {"node": "a"}, "on-b": {"node": "b"}} {
		e.SetPolicy(policy.Policy{
			Ref: ofPolicy(name), Tier: intent.NetworkPolicyTier, Ingress: true,
			Subjects: []policy.Selector{{Namespace: "default", Pods: labels.SelectorFromSet(set)}},
			Rules: []policy.Rule{{
				Direction: intent.Ingress, Number: 1, Action: intent.Allow, AnyPeer: true, AnyPort: true,
			}},
		})
	}
}

// publish writes what the endpoint slice controller would.
func publish(t *testing.T, api kubernetes.Interface, addresses []string) {
	t.Helper()
	name := wire.PortName
	for i, a := range addresses {
		at := of(netip.ParseAddrPort(a))(t)
		port := int32(at.Port())
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: wire.Service + "-" + strconv.Itoa(i), Namespace: streamtest.Namespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: wire.Service},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		}
		of(api.DiscoveryV1().EndpointSlices(streamtest.Namespace).Create(t.Context(), slice, metav1.CreateOptions{}))(t)
	}
}
