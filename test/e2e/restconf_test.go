// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

const (
	restconfUser     = "admin"
	restconfPassword = "not a secret"
	restconfArg      = "--restconf-bind-address=:10364"
)

// restconf is a client outside of the cluster's API: it knows the controllers' authority, and a
// user with a password.
type restconf struct {
	http     http.Client
	password string
}

// TestRESTCONF switches RESTCONF on, and has a client write and read what kubectl shows, also while
// controllers end.
func TestRESTCONF(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	serveRESTCONF(ctx, t)
	c := newRESTCONF(ctx, t, restconfPassword)
	if err := eventually(ctx, func() error { return c.says(ctx, http.MethodGet, http.StatusNotFound) }); err != nil {
		t.Fatal(err)
	}
	inOrder(t, []step{
		{"written and read", c.written},
		{"as it is", c.asItIs},
		{"streamed", c.streamed},
		{"refused", c.refused},
		{"controllers end", c.controllersEnd},
	})
}

// serveRESTCONF has the controllers serve RESTCONF, as restconf.enabled of the chart does, to a
// user that may write Networks, Routers and Ports.
func serveRESTCONF(ctx context.Context, t *testing.T) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(restconfPassword), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	made := [][]string{
		{"secret", "generic", "coelan-restconf-users", "--from-literal=" + restconfUser + "=" + string(hash) + " odl-admin"},
		{"role", "coelan-restconf", "--verb=get", "--resource=secrets", "--resource-name=coelan-restconf-users"},
		{"rolebinding", "coelan-restconf", "--role=coelan-restconf", "--serviceaccount=" + agents + ":coelan-controller"},
		{"clusterrole", "coelan-networks", "--verb=list,create,update,delete",
			"--resource=networks.coelan.io,routers.coelan.io,ports.coelan.io,networkpolicies.networking.k8s.io"},
		{"clusterrolebinding", "odl-admin", "--clusterrole=coelan-networks", "--user=odl-admin"},
		{"clusterrole", "coelan-restconf", "--verb=create,update,delete", "--resource=networkpolicies.networking.k8s.io"},
		{"clusterrolebinding", "coelan-restconf", "--clusterrole=coelan-restconf", "--serviceaccount=" + agents + ":coelan-controller"},
	}
	for _, args := range made {
		if _, err := world.Kubectl(ctx, append([]string{"-n", agents, "create"}, args...)...); err != nil {
			t.Fatal(err)
		}
		kind, name := args[0], args[1]
		if kind == "secret" {
			name = args[2]
		}
		t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", agents, kind, name) })
	}
	useArg(ctx, t, true)
	t.Cleanup(func() { useArg(context.WithoutCancel(ctx), t, false) })
	if _, err := world.Kubectl(ctx, "-n", agents, "expose", "deployment", "coelan-controller", "--name=coelan-restconf",
		"--port=443", "--target-port=10364"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", agents, "service", "coelan-restconf") })
}

// useArg changes whether the controllers serve RESTCONF, and waits until they all do.
func useArg(ctx context.Context, t *testing.T, serve bool) {
	t.Helper()
	deployment, err := world.api.AppsV1().Deployments(agents).Get(ctx, "coelan-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return arg == restconfArg })
	if serve {
		container.Args = append(container.Args, restconfArg)
	}
	if _, err := world.api.AppsV1().Deployments(agents).Update(ctx, deployment, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
}

func newRESTCONF(ctx context.Context, t *testing.T, password string) *restconf {
	t.Helper()
	authority, err := world.api.CoreV1().ConfigMaps(agents).Get(ctx, "coelan-controller-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(authority.Data["ca.crt"])) {
		t.Fatal("the ConfigMap coelan-controller-ca has no certificate")
	}
	node := world.netns(worker1)
	at := netip.AddrPortFrom(world.serviceAddress(ctx, t, agents+"/coelan-restconf", families[0]), 443)
	return &restconf{password: password, http: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, // each request is for any of the controllers
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
			err = node.Do(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, at.String())
				return err
			})
			return conn, err
		},
	}}}
}

// do sends a request and returns the status and the body of the answer.
func (c *restconf) do(ctx context.Context, method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://coelan-controller.coelan-system.svc"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.SetBasicAuth(restconfUser, c.password)
	r.Header.Set("Content-Type", "application/yang-data+json")
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// succeeds expects one of the statuses of success, and returns the body.
func (c *restconf) succeeds(ctx context.Context, t *testing.T, method, path, body string) string {
	t.Helper()
	status, text, err := c.do(ctx, method, path, body)
	if err != nil || status >= 300 {
		t.Fatalf("%s %s: %d %s, %v", method, path, status, text, err)
	}
	return text
}

const (
	coePool = "/restconf/data/dhcp_allocation_pool:dhcp_allocation_pool/network=coe"
	coePod  = "/restconf/data/pod:coe/pods=11111111-2222-3333-4444-555555555555"
)

// coeNetwork is a Network as clients of Netvirt make it.
const coeNetwork = `{"ietf-restconf:data": {
  "elan:elan-instances": {"elan-instance": [
    {"elan-instance-name": "coe", "segment-type": "elan:segment-type-vxlan", "segmentation-id": 70053}]},
  "dhcp_allocation_pool:dhcp_allocation_pool": {"network": [{"network-id": "coe", "allocation-pool": [
    {"subnet": "10.53.0.0/24", "gateway": "10.53.0.1", "allocate-from": "10.53.0.10", "allocate-to": "10.53.0.250"}]}]}}}`

// written makes a Network and a workload by RESTCONF, which kubectl shows, and the reverse.
func (c *restconf) written(t *testing.T) {
	ctx := within(t, time.Minute)
	c.succeeds(ctx, t, http.MethodPatch, "/restconf/data", coeNetwork)
	network := named(&v1alpha1.Network{}, "coe")
	if err := wait(ctx, network, networkReady); err != nil {
		t.Fatal(err)
	}
	if s := network.Spec; s.VNI == nil || *s.VNI != 70053 || len(s.Subnets) != 1 || s.Subnets[0].CIDR != "10.53.0.0/24" {
		t.Errorf("Network coe is %+v", network.Spec)
	}
	c.succeeds(ctx, t, http.MethodPut, coePod, `{"pod:pods": [{"uid": "11111111-2222-3333-4444-555555555555",
		"name": "db-0", "network-NS": "e2e", "interface": [
		{"uid": "11111111-2222-3333-4444-555555555555", "ip-address": "10.53.0.12", "network-id": "coe"}]}]}`)
	port := named(&v1alpha1.Port{}, "e2e/11111111-2222-3333-4444-555555555555")
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil || !slices.Equal(port.Status.Addresses, []string{"10.53.0.12"}) {
		t.Errorf("the workload's Port has %v, %v", port.Status.Addresses, err)
	}
	if _, err := world.Kubectl(ctx, "patch", "vnet", "coe", "--type=merge", "-p",
		`{"spec":{"dns":{"nameservers":["192.0.2.53"]}}}`); err != nil {
		t.Fatal(err)
	}
	if err := eventually(ctx, func() error {
		if text := c.succeeds(ctx, t, http.MethodGet, coePool, ""); !strings.Contains(text, "192.0.2.53") {
			return fmt.Errorf("the pool is %s", text)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if status, text, err := c.do(ctx, http.MethodDelete, coePool, ""); err != nil || status < 400 || !strings.Contains(text, "in-use") {
		t.Errorf("deletion in use: %d %s, %v", status, text, err)
	}
}

// asItIs reads what the workload has.
func (c *restconf) asItIs(t *testing.T) {
	ctx := within(t, time.Minute)
	pods := c.succeeds(ctx, t, http.MethodGet, "/restconf/ds/ietf-datastores:operational/pod:coe", "")
	for _, want := range []string{`"db-0"`, `"10.53.0.12"`, `"segmentation-id":70053`} {
		if !strings.Contains(pods, want) {
			t.Errorf("%s is not in %s", want, pods)
		}
	}
}

const coePolicy = "/restconf/data/k8s:k8s/network-policies/network-policy=22222222-2222-3333-4444-555555555555"

// streamed writes a NetworkPolicy, which kubectl shows and a client of a stream receives, and the
// reverse.
func (c *restconf) streamed(t *testing.T) {
	ctx := within(t, time.Minute)
	lines := c.stream(ctx, t, "/restconf/streams/running")
	c.succeeds(ctx, t, http.MethodPut, coePolicy, `{"k8s:network-policy": [{"uuid": "22222222-2222-3333-4444-555555555555",
		"name": "coe", "network-NS": "e2e", "network-policy-spec": {"pod-selector": {"match-labels": [{"key": "none", "value": "has"}]}}}]}`)
	p, err := world.api.NetworkingV1().NetworkPolicies("e2e").Get(ctx, "coe", metav1.GetOptions{})
	if err != nil || p.Spec.PodSelector.MatchLabels["none"] != "has" {
		t.Fatalf("%v, its spec is %+v", err, p.Spec)
	}
	receive(t, lines, `"operation":"create","target":"/k8s:k8s/network-policies/network-policy=22222222-`)
	remove(ctx, t, "-n", "e2e", "networkpolicy", "coe")
	receive(t, lines, `"operation":"delete","target":"/k8s:k8s/network-policies/network-policy=22222222-`)
}

// stream opens a stream, which ends with ctx.
func (c *restconf) stream(ctx context.Context, t *testing.T, path string) *bufio.Scanner {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://coelan-controller.coelan-system.svc"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(restconfUser, c.password)
	unbounded := c.http
	unbounded.Timeout = 0
	answer, err := unbounded.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 4<<20)
	return lines
}

// receive reads events until one has a text.
func receive(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), want) {
			return
		}
	}
	t.Fatalf("the stream ended without %s: %v", want, lines.Err())
}

// refused has a client with another password, and a user without the right.
func (c *restconf) refused(t *testing.T) {
	ctx := within(t, time.Minute)
	stranger := *c
	stranger.password = "another one"
	if status, text, err := stranger.do(ctx, http.MethodGet, coePool, ""); err != nil || status != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d %s, %v", status, text, err)
	}
	remove(ctx, t, "clusterrolebinding", "odl-admin")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if _, err := world.Kubectl(ctx, "create", "clusterrolebinding", "odl-admin",
			"--clusterrole=coelan-networks", "--user=odl-admin"); err != nil {
			t.Error(err)
		}
		if err := eventually(ctx, func() error { return c.says(ctx, http.MethodGet, http.StatusOK) }); err != nil {
			t.Error(err)
		}
	})
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if err := eventually(ctx, func() error { return c.says(ctx, method, http.StatusForbidden) }); err != nil {
			t.Error(err)
		}
	}
	if err := wait(ctx, named(&v1alpha1.Network{}, "coe"), networkReady); err != nil {
		t.Errorf("what was refused has an effect: %v", err)
	}
}

// says expects a status for a request for the workload's entry.
func (c *restconf) says(ctx context.Context, method string, want int) error {
	status, text, err := c.do(ctx, method, coePod, "")
	if err == nil && status != want {
		err = fmt.Errorf("%s: %d %s, want %d", method, status, text, want)
	}
	return err
}

// controllersEnd writes and reads while each controller ends: the other ones answer.
func (c *restconf) controllersEnd(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	pods, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		remove(ctx, t, "-n", agents, "pod", p.Name, "--wait=false")
		for range 5 {
			if err := eventually(ctx, func() error { return c.says(ctx, http.MethodGet, http.StatusOK) }); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s"); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{coePod, coePool} {
		if err := eventually(ctx, func() error {
			status, text, err := c.do(ctx, http.MethodDelete, path, "")
			if err == nil && status >= 300 && status != http.StatusNotFound {
				err = fmt.Errorf("DELETE %s: %d %s", path, status, text)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(waitGone(ctx, named(&v1alpha1.Port{}, "e2e/11111111-2222-3333-4444-555555555555")),
		waitGone(ctx, named(&v1alpha1.Network{}, "coe"))); err != nil {
		t.Error(err)
	}
}
