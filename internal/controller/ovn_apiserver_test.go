// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/internal/reserved"
)

// withOVN has the controller write into OVN's northbound database.
func withOVN(ovn *ovntest.OVN) func(*controller.Options) {
	return func(o *controller.Options) {
		o.OVN = &controller.OVN{
			Northbound: []string{ovn.Remote("nb")}, PolicyMode: intent.EnforcedPolicies, SNAT: intent.SNAT{Enabled: true},
		}
	}
}

// testProgrammedByOVN has the condition Programmed say what OVN does of FloatingIPs and Egresses,
// and, through a restart of the controller, what has changed meanwhile.
func testProgrammedByOVN(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	ovn := ovntest.Start(t)
	stop := w.start(withOVN(ovn))
	w.connected(1, "office")
	w.namespace("by-ovn", nil)
	red := router("red", nil, nil)
	red.Spec.Routes = []v1alpha1.Route{{Destination: "0.0.0.0/0", NextHop: "10.90.0.9"}}
	w.create(external("office", "192.0.2.0/24"), red, overlay("red-lan", "red", "10.90.0.0/24"))
	web := userPort("by-ovn", "web", "red-lan", "10.90.0.5")
	w.create(web)
	w.port("by-ovn", "web", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortReady })
	w.bind(web, "worker1")

	f := floatingIP("by-ovn", "web", v1alpha1.FloatingIPSpec{Network: "office", Address: "192.0.2.7", Port: "web"})
	e := egress("out", "office", "by-ovn", "192.0.2.8")
	w.create(f, e)
	says := func(o *v1alpha1.FloatingIP, status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		w.condition(o, func() []metav1.Condition { return o.Status.Conditions }, v1alpha1.ConditionProgrammed, status, reason, text)
	}
	says(f, metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "its own default route: remove that")
	w.condition(e, func() []metav1.Condition { return e.Status.Conditions },
		v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "leave as their nodes")

	// The route goes while there is no controller.
	stop()
	w.change(red, func() { red.Spec.Routes = nil })
	stop = w.start(withOVN(ovn))
	says(f, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	if nat := ovn.Nbctl("lr-nat-list", "router-red"); !strings.Contains(nat, "192.0.2.7") {
		t.Errorf("the FloatingIP is said to be programmed, and OVN has:\n%s", nat)
	}

	// What is new while the database is away waits for it.
	ovn.StopNB()
	late := floatingIP("by-ovn", "late", v1alpha1.FloatingIPSpec{Network: "office", Address: "192.0.2.9"})
	w.create(late)
	w.floats("by-ovn", "late", v1alpha1.ReasonUnassociated, readyIP("192.0.2.9", ""))
	ovn.StartNB()
	says(late, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	says(f, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	stop()
}

// controllerSocket is a place for the socket of a controller's diagnostics.
func controllerSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "check") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "controller.sock")
}

// awaitAnswer asks a controller until the answer is right.
func awaitAnswer[T any](w *world, socket, path, what string, right func(T) bool) {
	w.Helper()
	w.until(func() string {
		var out bytes.Buffer
		err := localapi.Query(w.Context(), "controller", socket, path, nil, &out)
		var answer T
		if err == nil && json.Unmarshal(out.Bytes(), &answer) == nil && right(answer) {
			return ""
		}
		return fmt.Sprintf("%s: %s, error %v", what, out.String(), err)
	})
}

// testCheckOfOVN asks a controller how OVN's northbound database differs from what objects want:
// nothing does while it works, and a Network is missing while another system has its switch's name.
func testCheckOfOVN(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	ovn := ovntest.Start(t)
	socket := controllerSocket(t)
	stop := w.start(func(o *controller.Options) {
		withOVN(ovn)(o)
		o.Socket = socket
	})
	defer stop()
	finds := func(what string, ok func(agentapi.OVNCheck) bool) {
		t.Helper()
		awaitAnswer(w, socket, "/v1/ovn/check", what, ok)
	}
	finds("all is as wanted", func(c agentapi.OVNCheck) bool { return c.OK && c.Rows > 0 })
	ovn.Nbctl("ls-add", "net-compared")
	w.create(router("compared", nil, nil), overlay("compared", "compared", "10.91.0.0/24"))
	finds("a Network whose name is taken", func(c agentapi.OVNCheck) bool {
		return slices.ContainsFunc(c.Findings, func(f agentapi.Finding) bool {
			return f.Object == "Logical_Switch net-compared" && strings.HasPrefix(f.Problem, "of Network compared is missing: ") &&
				strings.Contains(f.Problem, "has a row of this name")
		})
	})
	ovn.Nbctl("ls-del", "net-compared")
	finds("the name is free", func(c agentapi.OVNCheck) bool { return c.OK })
	ovn.StopNB()
	finds("the database is away", func(c agentapi.OVNCheck) bool {
		return len(c.Findings) == 1 && c.Findings[0].Kind == "northbound" &&
			strings.Contains(c.Findings[0].Problem, "OVN's northbound database does not answer")
	})
	ovn.StartNB()
	finds("the database is back", func(c agentapi.OVNCheck) bool { return c.OK })
}

// testPortsOfIsolated has the condition of a Port say that OVN does not isolate its namespace, as
// long as it is asked to.
func testPortsOfIsolated(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	ovn := ovntest.Start(t)
	w.start(func(o *controller.Options) {
		withOVN(ovn)(o)
		o.Mapping = config.MapNamespace
	})
	w.node(1)
	ns := w.namespace("apart", map[string]string{v1alpha1.LabelIsolated: "true"})
	pod := w.pod("apart", "p", "worker1")
	w.ready("ns-apart-worker1")
	address := netip.MustParseAddr("10.244.1.5")
	port := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "p.eth0", Labels: map[string]string{v1alpha1.LabelPodPort: "true"}},
		Spec: v1alpha1.PortSpec{
			Network: "ns-apart-worker1", Node: "worker1", Pod: &v1alpha1.PortPod{Name: pod.Name, UID: string(pod.UID), Interface: "eth0"},
		},
	}
	w.create(port)
	w.status(port, func() {
		port.Status = v1alpha1.PortStatus{
			Phase: v1alpha1.PortBound, Node: "worker1", Addresses: []string{address.String()}, MAC: reserved.PodMAC(address).String(),
		}
	})
	has := func() []metav1.Condition { return port.Status.Conditions }
	w.condition(port, has, v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "isolated namespace")
	inOVN := func() bool {
		return slices.Contains(strings.Fields(ovn.Nbctl("--bare", "--columns=name", "list", "logical_switch_port")), "apart/p.eth0")
	}
	if inOVN() {
		t.Error("OVN has the Port")
	}
	w.change(ns, func() { delete(ns.Labels, v1alpha1.LabelIsolated) })
	w.condition(port, has, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	if !inOVN() {
		t.Error("the Port is said to be programmed, and OVN does not have it")
	}
}
