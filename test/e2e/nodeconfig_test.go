// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/sandbox"
)

// rack7 is a configuration for the nodes with a label.
const rack7 = `
apiVersion: coelan.io/v1alpha1
kind: NodeNetworkConfig
metadata: {name: rack-7}
spec: {nodeSelector: {matchLabels: {rack: "7"}}, mtu: %d}
`

// nodeConfigMTU is that of rack-7, and usualMTU that of the ConfigMap's nodes.
const (
	nodeConfigMTU = 1400
	usualMTU      = 1450
)

// TestNodeNetworkConfig gives one node another MTU by its label, while traffic runs that must not
// notice; then what the node cannot have; takes the controllers away; and takes all of it back.
func TestNodeNetworkConfig(t *testing.T) {
	ctx := within(t, 10*time.Minute)
	if _, err := world.Kubectl(ctx, "label", "node", worker1, "rack=7"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "nnc", "rack-7", "rack-7-too", "by-name")
		if _, err := world.Kubectl(ctx, "label", "node", worker1, "rack-"); err != nil {
			t.Error(err)
		}
	})
	inOrder(t, []step{
		{"applied", nodeConfigApplied},
		{"refused", nodeConfigRefused},
		{"conflict", nodeConfigConflict},
		{"address of another node", nodeConfigStolen},
		{"without controllers", nodeConfigAlone},
		{"deleted", nodeConfigDeleted},
	})
}

// nodeConfig waits until a configuration has a reason on so many nodes.
func nodeConfig(ctx context.Context, t *testing.T, name, reason string, applied, selected int32) *v1alpha1.NodeNetworkConfig {
	t.Helper()
	c := named(&v1alpha1.NodeNetworkConfig{}, name)
	want := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReady {
		want = metav1.ConditionTrue
	}
	err := wait(ctx, c, func(c *v1alpha1.NodeNetworkConfig) error {
		if c.Status.AppliedNodes != applied || c.Status.SelectedNodes != selected {
			return fmt.Errorf("status %+v", c.Status)
		}
		return says(c.Status.Conditions, v1alpha1.ConditionReady, want, reason)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podMTU makes a pod on a node, and says what its interface has.
func podMTU(ctx context.Context, t *testing.T, name, node string) string {
	t.Helper()
	makePod(ctx, t, sleeper("e2e/"+name, node))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "e2e/"+name) })
	if err := world.waitReady(ctx, "e2e/"+name); err != nil {
		t.Fatal(err)
	}
	return linkMTU(ctx, t, "e2e/"+name)
}

func linkMTU(ctx context.Context, t *testing.T, key string) string {
	t.Helper()
	_, rest, _ := strings.Cut(world.pod(ctx, t, key).run(ctx, t, "ip", "-o", "link", "show", "eth0"), " mtu ")
	mtu, _, _ := strings.Cut(rest, " ")
	return mtu
}

// wantMTU makes pods on both workers.
func wantMTU(ctx context.Context, t *testing.T, name string, first int) {
	t.Helper()
	for node, want := range map[string]int{worker1: first, worker2: usualMTU} {
		if got := podMTU(ctx, t, name+"-"+node, node); got != fmt.Sprint(want) {
			t.Errorf("a new pod on %s has MTU %s, want %d", node, got, want)
		}
	}
}

// configuredBy waits until `coelan status` of the first worker has a text.
func configuredBy(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	err := eventually(ctx, func() error {
		out, err := world.coelan(ctx, "status", "--node", worker1)
		if err == nil && (!strings.Contains(out, want) || !strings.Contains(out, "worker1: ready")) {
			err = fmt.Errorf("%q is not in:\n%s", want, out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func nodeConfigApplied(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	apply(ctx, t, fmt.Sprintf(rack7, nodeConfigMTU))
	c := nodeConfig(ctx, t, "rack-7", v1alpha1.ReasonReady, 1, 1)
	if n := c.Status.Nodes; len(n) != 1 || n[0].Name != worker1 || n[0].AppliedGeneration != c.Generation || n[0].AppliedTime == nil {
		t.Errorf("nodes %+v", n)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	configuredBy(ctx, t, "nodenetworkconfig rack-7, generation 1")
	wantMTU(ctx, t, "applied", nodeConfigMTU)
	if got := linkMTU(ctx, t, "e2e/client1"); got != fmt.Sprint(usualMTU) {
		t.Errorf("a pod that runs has MTU %s", got)
	}
	out, err := world.Kubectl(ctx, "get", "nnc", "rack-7")
	if err != nil || !strings.Contains(string(out), "APPLIED") || !strings.Contains(string(out), "LASTAPPLIED") {
		t.Errorf("kubectl get nnc: %s, %v", out, err)
	}
	for _, server := range []string{"e2e/web1", "e2e/web2"} {
		if err := ask(ctx, t, "e2e/client1", server); err != nil {
			t.Error(err)
		}
	}
}

// nodeConfigRefused is what the node cannot have: it says why, keeps what it has, and traffic goes
// on.
func nodeConfigRefused(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	for _, bad := range []struct{ spec, why string }{
		{`{"mtu":9000}`, "mtu: 9000 is too large"},
		{`{"mtu":1400,"encapsulation":"Geneve"}`, "encapsulation: the ConfigMap has vxlan"},
		{`{"encapsulation":null,"uplinks":{"lab":{"interface":"nosuch0"}}}`, "interface nosuch0 does not exist"},
	} {
		if _, err := world.Kubectl(ctx, "patch", "nnc", "rack-7", "--type=merge", "-p", `{"spec":`+bad.spec+`}`); err != nil {
			t.Fatal(err)
		}
		c := named(&v1alpha1.NodeNetworkConfig{}, "rack-7")
		err := wait(ctx, c, func(c *v1alpha1.NodeNetworkConfig) error {
			if n := c.Status.Nodes; len(n) != 1 || !strings.Contains(n[0].Message, bad.why) {
				return fmt.Errorf("nodes %+v, want %q", n, bad.why)
			}
			return says(c.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRefusedByNodes)
		})
		if err != nil {
			t.Fatal(err)
		}
		configuredBy(ctx, t, bad.why)
	}
	wantMTU(ctx, t, "refused", nodeConfigMTU)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	if _, err := world.Kubectl(ctx, "patch", "nnc", "rack-7", "--type=merge", "-p", `{"spec":{"mtu":1400,"uplinks":null}}`); err != nil {
		t.Fatal(err)
	}
	nodeConfig(ctx, t, "rack-7", v1alpha1.ReasonReady, 1, 1)
}

// nodeConfigConflict has a younger one wait for the older, and one that names the node come before
// both.
func nodeConfigConflict(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	apply(ctx, t, strings.Replace(fmt.Sprintf(rack7, 1300), "rack-7", "rack-7-too", 1))
	nodeConfig(ctx, t, "rack-7-too", v1alpha1.ReasonNodesTaken, 0, 0)
	if err := eventually(ctx, func() error {
		out, err := world.Kubectl(ctx, "get", "events", "-A", "--field-selector", "reason=NodesTaken", "-o", "jsonpath={.items[*].message}")
		if err == nil && (!strings.Contains(string(out), "rack-7,") || !strings.Contains(string(out), "rack-7-too")) {
			err = fmt.Errorf("events: %q", out)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	apply(ctx, t, `{apiVersion: coelan.io/v1alpha1, kind: NodeNetworkConfig, metadata: {name: by-name}, spec: {nodeName: worker1, mtu: 1350}}`)
	nodeConfig(ctx, t, "by-name", v1alpha1.ReasonReady, 1, 1)
	nodeConfig(ctx, t, "rack-7", v1alpha1.ReasonNoNode, 0, 0)
	wantMTU(ctx, t, "named", 1350)
	remove(ctx, t, "nnc", "by-name", "rack-7-too")
	nodeConfig(ctx, t, "rack-7", v1alpha1.ReasonReady, 1, 1)
}

// nodeConfigStolen asks with the first worker's token, from there and from the second.
func nodeConfigStolen(t *testing.T) {
	ctx := within(t, time.Minute)
	list, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + worker1,
	})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("agents of %s: %d, %v", worker1, len(list.Items), err)
	}
	pod := list.Items[0]
	token, err := world.api.CoreV1().ServiceAccounts(agents).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{wire.Audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controllers, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
	if err != nil || len(controllers.Items) == 0 {
		t.Fatalf("no controller, %v", err)
	}
	at := net.JoinHostPort(controllers.Items[0].Status.HostIP, "10363")
	ask := func(node string) (string, error) {
		c := dialController(ctx, t, world.netns(node), at, token.Status.Token)
		defer c.Close()
		stream, err := wire.NewPoliciesClient(c).Configuration(ctx, &wire.ConfigurationRequest{})
		if err != nil {
			return "", err
		}
		answer, err := stream.Recv()
		return answer.GetName(), err
	}
	if got, err := ask(worker1); err != nil || got != "rack-7" {
		t.Errorf("control: %q, %v", got, err)
	}
	_, err = ask(worker2)
	own := world.nodeAddress(ctx, t, worker1, ipv4).String()
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "is not an address of node worker1") || !strings.Contains(err.Error(), own) {
		t.Errorf("from another node: %v", err)
	}
}

// dialController connects to a controller from a place.
func dialController(ctx context.Context, t *testing.T, from place, at, token string) *grpc.ClientConn {
	t.Helper()
	authority, err := world.api.CoreV1().ConfigMaps(agents).Get(ctx, wire.ConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(authority.Data[wire.RootsKey])) {
		t.Fatal("there is no certificate")
	}
	conn, err := grpc.NewClient("passthrough:///"+at,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: wire.ServerName(agents),
		})),
		grpc.WithPerRPCCredentials(client.Token(func() (string, error) { return token, nil })),
		grpc.WithContextDialer(func(ctx context.Context, address string) (conn net.Conn, err error) {
			err = from.Do(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
				return err
			})
			return conn, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// nodeConfigAlone starts the agent anew without any controller.
func nodeConfigAlone(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	if err := rollControllers(ctx, "0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rollControllers(context.WithoutCancel(ctx), "2"); err != nil {
			t.Error(err)
		}
	})
	if err := world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	configuredBy(ctx, t, "nodenetworkconfig rack-7")
	wantMTU(ctx, t, "alone", nodeConfigMTU)
}

func nodeConfigDeleted(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	remove(ctx, t, "nnc", "rack-7")
	configuredBy(ctx, t, "the ConfigMap's")
	wantMTU(ctx, t, "deleted", usualMTU)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	world.healthy(ctx, t)
}
