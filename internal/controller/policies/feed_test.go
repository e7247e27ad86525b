// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/translate/policies"
)

// What memory keeps of pods and nodes is to policies what they are.
func TestSlimPodsAreTheSameToPolicies(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ports := func(ports ...corev1.ContainerPort) []corev1.Container {
		return []corev1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i", Ports: ports, RestartPolicy: &always}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p", UID: "u", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{v1alpha1.AnnotationSecurityGroups: "x,y", "kubernetes.io/config.hash": "h", "other": "large"},
		},
		Spec: corev1.PodSpec{
			NodeName:       "n1",
			Containers:     ports(corev1.ContainerPort{ContainerPort: 1}, corev1.ContainerPort{Name: "http", ContainerPort: 80}),
			InitContainers: ports(corev1.ContainerPort{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}),
		},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}, {IP: "fd00::5"}}},
	}
	slimmed, err := reconcile.TrimForCache(pod.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	endpoints := func(p *corev1.Pod) string {
		e := policies.NewEndpoints()
		e.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00::/64"}},
		})
		e.SetPod(p)
		set, _ := e.Changes()
		return fmt.Sprintf("%+v %+v", set, e.Problems())
	}
	if diff := cmp.Diff(endpoints(pod), endpoints(slimmed.(*corev1.Pod))); diff != "" {
		t.Errorf("pod (-whole +slim):\n%s", diff)
	}
	if kept := slimmed.(*corev1.Pod); len(kept.Annotations) != 2 || len(kept.Spec.Containers) != 1 || kept.Spec.Containers[0].Image != "" {
		t.Errorf("more is kept than is read: %+v", kept)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}
	slimNode, err := reconcile.TrimForCache(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fmt.Sprint(policies.Node(node, nil)), fmt.Sprint(policies.Node(slimNode.(*corev1.Node), nil))); diff != "" {
		t.Errorf("node (-whole +slim):\n%s", diff)
	}
}

func testPolicies(objects ...client.Object) (*Feed, *Distribution) {
	to := NewDistribution()
	p := newFeed(slog.New(slog.DiscardHandler), nil, to, NewProgress(reconcile.NewScheme()), heartbeat.New(heartbeat.Bound))
	for _, o := range objects {
		p.note(o, false)
	}
	p.apply()
	return p, to
}

func viewOf(to *Distribution, node string) (v policy.View) {
	to.Engine.Update(func(e *policy.Engine) { v = e.View(node) })
	return v
}

func policed() (*corev1.Namespace, *corev1.Node, *corev1.Pod, *networkingv1.NetworkPolicy) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n1"},
		},
		&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "deny", UID: "one", Generation: 1},
			Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
		}
}

// Of several events about one object the last counts, also after a watch has missed some.
func TestPoliciesFollowTheLastEvent(t *testing.T) {
	namespace, node, pod, deny := policed()
	p, to := testPolicies(namespace, node, pod, deny)
	isolated := func(want int) {
		t.Helper()
		p.apply()
		v := viewOf(to, "n1")
		if len(v.Subjects) != 1 || len(v.Subjects[0].IngressIsolation) != want {
			t.Errorf("isolated by %+v, want %d", v.Subjects, want)
		}
	}
	isolated(1)
	p.note(deny, true)
	p.note(deny, false)
	isolated(1)
	p.note(toolscache.DeletedFinalStateUnknown{Key: "a/deny", Obj: deny}, true)
	isolated(0)
	// It was deleted and made again, with the same generation.
	again := deny.DeepCopy()
	again.UID = "two"
	again.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	p.note(deny, false)
	isolated(1)
	p.note(again, false)
	isolated(0)
	for range len(p.findingsChanged) {
		<-p.findingsChanged
	}
	other := pod.DeepCopy()
	other.Name, other.UID, other.Spec.NodeName = "q", "v", "n2"
	p.note(other, false)
	if p.apply(); len(p.findingsChanged) != 1 {
		t.Error("nobody counts the nodes again")
	}
	p.note(namespace, true)
	p.apply()
	if v := viewOf(to, "n1"); v.Subjects[0].Closed == "" {
		t.Errorf("open in a namespace that is not known: %+v", v.Subjects)
	}
	p.note(pod, true)
	p.note(node, true)
	p.apply()
	if v := viewOf(to, "n1"); len(v.Subjects) > 0 {
		t.Errorf("a pod that is gone: %+v", v.Subjects)
	}
}

// An unknown version of the definition, with other types of fields, opens nothing and does
// not stop anything else.
func TestUnreadableClusterNetworkPolicy(t *testing.T) {
	namespace, node, pod, deny := policed()
	bad := policyapi.New()
	bad.SetName("bad")
	bad.Object["spec"] = map[string]any{
		"tier": "Admin", "priority": "high", "subject": map[string]any{"namespaces": map[string]any{}},
		"egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{"networks": []any{"10.0.0.0/8"}}}}},
	}
	p, to := testPolicies(namespace, node, pod, bad, deny)
	v := viewOf(to, "n1")
	if len(v.Subjects) != 1 || len(v.Subjects[0].IngressIsolation) != 1 {
		t.Errorf("%+v", v.Subjects)
	}
	if len(v.Rules) != 1 || v.Rules[0].Action != intent.Deny || len(v.Rules[0].Blocks) != 1 {
		t.Errorf("%+v", v.Rules)
	}
	list, _ := p.findings()
	if len(list) != 1 || len(list[0].problems) != 1 || list[0].problems[0].Field != "spec.priority" {
		t.Errorf("findings %+v", list)
	}
}

// Problems are reported by Events of the object and in the condition; conditions of others stay.
func TestPolicyStatus(t *testing.T) {
	namespace, node, pod, _ := policed()
	pod.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: "web,none"}
	group := &v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "g", Generation: 3}}
	for range 7 {
		group.Spec.Rules = append(group.Spec.Rules, v1alpha1.SecurityGroupRule{Direction: v1alpha1.RuleIngress, Protocol: "quic"})
	}
	cluster := policyapi.New()
	cluster.SetName("admin")
	cluster.Object["spec"] = map[string]any{
		"tier": "Admin", "priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{}},
	}
	cluster.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Seen", "status": "True", "reason": "Other", "message": "by somebody else", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	a := reconciletest.Access(group)
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
		t.Fatal(err)
	}
	p, _ := testPolicies(namespace, node, pod, group, cluster)
	s := &policyStatus{Access: a, policies: p, events: reconcile.EventDedup{Kinds: policyKindNames},
		loop: heartbeat.New(heartbeat.Bound).Loop("policy-status")}
	list, ofEndpoints := p.findings()
	for range 2 {
		if err := s.events.Report(t.Context(), a, append(problemsOfPolicies(list), problemsOfEndpoints(ofEndpoints)...)); err != nil {
			t.Fatal(err)
		}
	}
	recorder := a.Events.(*record.FakeRecorder)
	if got := len(recorder.Events); got != 8 {
		t.Errorf("%d Events, want one for each rule and one for the pod", got)
	}
	for len(recorder.Events) > 0 {
		if text := <-recorder.Events; !strings.Contains(text, `Malformed spec.rules[`) && !strings.Contains(text, `NotFound metadata.annotations[coelan.io/security-groups]: "none"`) {
			t.Errorf("Event %s", text)
		}
	}
	for _, k := range list {
		if k.ref.Kind != intent.SecurityGroup {
			continue
		}
		if err := s.write(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
			t.Fatal(err)
		}
		c := group.Status.Conditions
		if len(c) != 2 || c[0].Reason != v1alpha1.ReasonPartiallyInvalid || !strings.HasSuffix(c[0].Message, "and 2 more") || c[0].ObservedGeneration != 3 ||
			c[1].Reason != v1alpha1.ReasonPending || group.Status.Nodes != 1 {
			t.Errorf("status %+v", group.Status)
		}
	}
	changed, err := setClusterConditions(cluster, nil, server.ProgrammedNodes{Wanted: 2, Programmed: 2}, nil)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err = setClusterConditions(cluster, nil, server.ProgrammedNodes{Wanted: 2, Programmed: 2}, nil); err != nil || changed {
		t.Error("written again", err)
	}
	held := struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(cluster.Object, &held); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, c := range held.Status.Conditions {
		kinds = append(kinds, c.Type+" "+string(c.Status)+" "+c.Message)
	}
	if diff := cmp.Diff([]string{"Seen True by somebody else", "Accepted True ", "Programmed True on 2 of 2 nodes with pods that it is for"}, kinds); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// The condition Programmed says how far nodes are, and why one of those that leave the object out
// does so.
func TestConditionProgrammed(t *testing.T) {
	shared := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	one := []server.NodeRefusal{{Node: "n2", Reason: "OFPBAC_BAD_ARGUMENT"}}
	for _, tc := range []struct {
		name     string
		pending  bool
		progress string
		list     []server.NodeRefusal
		status   metav1.ConditionStatus
		reason   string
		want     string
	}{
		{"everywhere", false, "on 2 of 2 nodes", nil, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "on 2 of 2 nodes"},
		{"without progress", false, "", nil, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, ""},
		{"not yet", true, "on 1 of 2 nodes", nil, metav1.ConditionFalse, v1alpha1.ReasonPending, "on 1 of 2 nodes"},
		{
			"refused by one node", false, "", one, metav1.ConditionFalse, v1alpha1.ReasonRefused,
			"left out on node n2, whose switch refuses it: OFPBAC_BAD_ARGUMENT",
		},
		{
			"refused by several", true, "on 0 of 2 nodes",
			[]server.NodeRefusal{{Node: "n1", Reason: "OFPBMC_BAD_VALUE"}, {Node: "n2", Reason: "OFPBAC_BAD_ARGUMENT"}},
			metav1.ConditionFalse, v1alpha1.ReasonRefused,
			"on 0 of 2 nodes; left out on 2 nodes, whose switches refuse it, such as n1: OFPBMC_BAD_VALUE",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conditions := slices.Clone(shared)
			// Of an older release.
			conditions = append(conditions, metav1.Condition{Type: "Refused"}, metav1.Condition{Type: "Realised"})
			reconcile.SetProgrammed(&conditions, 3, tc.pending, tc.progress, tc.list)
			if len(conditions) != 2 {
				t.Fatalf("conditions %+v", conditions)
			}
			c := meta.FindStatusCondition(conditions, v1alpha1.ConditionProgrammed)
			if c == nil || c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.want || c.ObservedGeneration != 3 {
				t.Errorf("condition %+v, want %s %s %q", c, tc.status, tc.reason, tc.want)
			}
		})
	}
}

// A policy loses the condition Ready of an older release, but keeps that of another writer.
func TestFormerConditionsOfPolicies(t *testing.T) {
	for reason, want := range map[string]int{v1alpha1.ReasonReady: 2, "PartlyInvalid": 2, "SeenByOthers": 3} {
		conditions := []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}, {Type: "Realised"}}
		setPolicyConditions(&conditions, 1, nil, server.ProgrammedNodes{}, nil)
		if len(conditions) != want {
			t.Errorf("reason %s: conditions %+v", reason, conditions)
		}
	}
}

// What an agent says of a pod that it has attached is a Peer at once.
func TestAttachedPodsArePeers(t *testing.T) {
	namespace, node, pod, deny := policed()
	deny.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
	p, to := testPolicies(namespace, node, pod, deny)
	if v := viewOf(to, "n1"); len(v.Peers) > 0 {
		t.Fatalf("%+v", v.Peers)
	}
	to.Hub.OnAttached(server.NodeAttachment{Node: "n1", Attachment: policy.Attachment{
		Namespace: "a", Name: "p", Subject: intent.PodSubject("u"), Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.5")},
	}})
	p.apply()
	if v := viewOf(to, "n1"); len(v.Peers) != 1 || v.Peers[0].Address != netip.MustParseAddr("10.244.1.5") {
		t.Errorf("%+v", v.Peers)
	}
	for range 2 * maxAttached {
		to.Hub.OnAttached(server.NodeAttachment{Node: "n1"})
	}
	if len(p.attached) > maxAttached {
		t.Errorf("%d attachments wait", len(p.attached))
	}
}

// Problems of all policies are reported, also of kinds without a status, but not
// before all are known.
func TestStanding(t *testing.T) {
	namespace, node, pod, deny := policed()
	bad := deny.DeepCopy()
	bad.Name, bad.UID, bad.Spec.PodSelector.MatchLabels = "bad", "two", map[string]string{"app": "none"}
	bad.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "moon"}}}}}
	p, _ := testPolicies(namespace, node, pod, deny, bad)
	socket := filepath.Join(t.TempDir(), "run", "c.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	d := &diagnostics{socket: socket, policies: p}
	l, err := localapi.Listen(ctx, d.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- localapi.Serve(ctx, l, d.handler()) }()
	ask := func() (string, error) {
		var out bytes.Buffer
		err := localapi.Query(ctx, "controller", socket, "/v1/policies", nil, &out)
		return out.String(), err
	}
	if text, err := ask(); err == nil || !strings.Contains(err.Error(), "not all policies are known yet") {
		t.Errorf("before all are known: %q, %v", text, err)
	}
	close(p.complete)
	text, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	var got []policy.EnforcementStatus
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	ref := func(name string) intent.PolicyRef {
		return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "a", Name: name}
	}
	if len(got) != 2 || len(got[0].Problems) != 1 || !strings.Contains(got[0].Problems[0], `spec.ingress[0].from[0].ipBlock.cidr: "moon"`) {
		t.Fatalf("%s", text)
	}
	got[0].Problems = nil
	if diff := cmp.Diff([]policy.EnforcementStatus{{Policy: ref("bad")}, {Policy: ref("deny"), Nodes: 1}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text, err := ask(); err == nil {
		t.Errorf("when it has ended: %q", text)
	}
}
