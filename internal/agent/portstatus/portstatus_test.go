// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/apicache/apicachetest"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a running Publisher with its API and its store.
type world struct {
	t     *testing.T
	api   *kubetest.API
	store *attachment.Store
	view  *apicache.View
	*Publisher
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, v := apicachetest.Open(t)
	w := &world{t: t, api: kubetest.New("n1"), store: store, view: v}
	w.Publisher = New(Options{
		Log: log, Node: "n1", API: w.api, View: v, Store: store, Singles: blockipam.New(log, "n1", w.api, v, store),
		Annotations: func(_ *corev1.Pod, list []attachment.Attachment) map[string]string {
			return map[string]string{"interfaces": fmt.Sprint(len(list))}
		},
	})
	return w
}

// run lets it work while the view shows the API.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	hide := w.api.Show(w.view.Updates(func() {}), func(pods kube.Delta[*corev1.Pod]) {
		w.view.SetPods(pods)
		w.PodsChanged()
	})
	w.t.Cleanup(func() {
		hide()
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// attach records an interface of a pod on a Network.
func (w *world) attach(pod, uid, network string, fixed ...string) attachment.Attachment {
	w.t.Helper()
	r := attachment.Plan{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: pod + uid, IfName: "net1"}, PodNamespace: "shop", PodName: pod, PodUID: uid,
			NetworkName: network, NetworkID: 2, BlockSpace: network != "default",
		},
	}
	for _, a := range fixed {
		r.Addresses = append(r.Addresses, netip.MustParseAddr(a))
	}
	at, err := w.store.Allocate(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

func (w *world) release(at attachment.Attachment) {
	w.t.Helper()
	if _, err := w.store.Release(at.Key); err != nil {
		w.t.Fatal(err)
	}
	w.Changed(at)
}

func (w *world) port(key string) *v1alpha1.Port {
	for _, p := range w.api.AllPorts() {
		if p.Namespace+"/"+p.Name == key {
			return p
		}
	}
	return nil
}

func TestPortsComeAndGoWithAttachments(t *testing.T) {
	w := newWorld(t)
	w.run()
	at := w.attach("p", "u1", "lan", "10.0.0.9")
	w.Changed(at)
	kubetest.Eventually(t, "the Port is bound", func() bool {
		p := w.port("shop/p.net1")
		return p != nil && p.Status.Phase == v1alpha1.PortBound && p.Status.Node == "n1" && p.Spec.Pod.UID == "u1" &&
			slices.Equal(p.Status.Addresses, []string{"10.0.0.9"}) && len(p.OwnerReferences) == 1
	})
	w.Changed(w.attach("q", "u2", "default", "10.244.1.9"))
	w.release(at)
	kubetest.Eventually(t, "the Port is gone", func() bool { return len(w.api.AllPorts()) == 0 })
	if slices.Contains(w.api.Calls(), "create port shop/q.net1") {
		t.Error("a Port on the default Network was made")
	}
}

func TestWithoutTheAPI(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.api.SetAway(true)
	kept, gone := w.attach("kept", "u1", "lan"), w.attach("gone", "u2", "lan")
	w.Changed(kept, gone)
	w.release(gone)
	kubetest.Eventually(t, "it is tried", func() bool { return slices.Contains(w.api.Calls(), "create port shop/kept.net1") })
	w.api.SetAway(false)
	kubetest.Eventually(t, "the Port is there", func() bool { return w.port("shop/kept.net1") != nil })
	if w.port("shop/gone.net1") != nil {
		t.Error("the Port of a pod that is gone was made")
	}
}

// What was left in the API by an earlier run is restored at the start.
func TestStart(t *testing.T) {
	w := newWorld(t)
	at := w.attach("p", "u1", "lan")
	for _, o := range []*v1alpha1.Port{
		{ObjectMeta: metav1.ObjectMeta{Name: "left.net1"}, Spec: v1alpha1.PortSpec{Node: "n1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "others.net1"}, Spec: v1alpha1.PortSpec{Node: "n2"}},
	} {
		o.Namespace, o.Labels = "shop", map[string]string{v1alpha1.LabelNode: "n1", v1alpha1.LabelPodPort: "true"}
		o.Spec.Pod = &v1alpha1.PortPod{Name: o.Name}
		w.api.Add(o)
	}
	w.api.Add(&v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "lan-10-0-0-9-32"},
		Spec:       v1alpha1.AddressBlockSpec{Network: "lan", CIDR: "10.0.0.9/32", Node: "n1", Port: "shop/left.net1"},
	})
	w.run()
	kubetest.Eventually(t, "Ports are those of the attachments", func() bool {
		return w.port(at.PortKey()) != nil && w.port("shop/left.net1") == nil && len(w.api.AllBlocks()) == 0
	})
	if w.port("shop/others.net1") == nil {
		t.Error("another node's Port was deleted")
	}
}

func TestFormerPodOfTheSameName(t *testing.T) {
	w := newWorld(t)
	old := w.attach("p", "u1", "lan", "10.0.0.9")
	if err := w.Write(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Release(old.Key); err != nil {
		t.Fatal(err)
	}
	now := w.attach("p", "u2", "lan", "10.0.0.9")
	if err := w.Write(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if p := w.port("shop/p.net1"); p.Spec.Pod.UID != "u2" || p.Status.Phase != v1alpha1.PortBound {
		t.Errorf("the Port is %+v %+v", p.Spec, p.Status)
	}
	// The former pod's DEL, which comes late, leaves it alone.
	w.run()
	w.Remove(old)
	w.Changed(now)
	kubetest.Eventually(t, "the former pod is forgotten", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.removed) == 0
	})
	if w.port("shop/p.net1") == nil {
		t.Error("the new pod's Port has gone with the former pod")
	}
}

// An agent has no right to delete the Ports of other nodes' pods: their nodes or the controller do.
func TestFormerPodOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	w.api.Add(&v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p.net1", UID: "former"},
		Spec:       v1alpha1.PortSpec{Network: "lan", Node: "n2", Pod: &v1alpha1.PortPod{Name: "p", UID: "u1", Interface: "net1"}},
	})
	w.run()
	kubetest.Eventually(t, "the Port is seen", func() bool { return w.view.State().Ports.Get("shop/p.net1") != nil })
	w.Changed(w.attach("p", "u2", "lan", "10.0.0.9"))
	kubetest.Eventually(t, "the former Port is looked at", func() bool { return slices.Contains(w.api.Calls(), "get port shop/p.net1") })
	w.api.RemovePort("shop/p.net1")
	kubetest.Eventually(t, "the Port is the new pod's", func() bool {
		p := w.port("shop/p.net1")
		return p != nil && p.Spec.Pod.UID == "u2" && p.Spec.Node == "n1"
	})
	if slices.Contains(w.api.Calls(), "delete port shop/p.net1") {
		t.Error("another node's Port was deleted")
	}
}

func TestPortOfAUserIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.api.Add(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p.net1"}, Spec: v1alpha1.PortSpec{Network: "lan"}})
	if err := w.Write(t.Context(), w.attach("p", "u1", "lan")); err == nil {
		t.Error("a user's Port was taken for a pod's")
	}
	w.run()
	w.Remove(w.attach("q", "u2", "lan"))
	kubetest.Eventually(t, "q was looked for", func() bool { return slices.Contains(w.api.Calls(), "get port shop/q.net1") })
	if w.port("shop/p.net1") == nil {
		t.Error("a user's Port was deleted")
	}
}

func TestAnnotations(t *testing.T) {
	w := newWorld(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: types.UID("u1")}}
	w.api.Add(pod)
	w.run()
	kubetest.Eventually(t, "the pod is seen", func() bool { return w.view.State().Pods.Get("u1") != nil })
	w.Changed(w.attach("p", "u1", "lan"))
	kubetest.Eventually(t, "the pod is told", func() bool {
		p := w.view.State().Pods.Get("u1")
		return p != nil && p.Annotations["interfaces"] == "1"
	})
}

// The runtime may ask for a pod's interfaces before the API has told of the pod.
func TestAnnotationsOfAPodThatComesLater(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.Changed(w.attach("p", "u1", "lan"))
	kubetest.Eventually(t, "the Port is there", func() bool { return len(w.api.AllPorts()) == 1 })
	w.api.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: types.UID("u1")}})
	kubetest.Eventually(t, "the pod is told", func() bool {
		p := w.view.State().Pods.Get("u1")
		return p != nil && p.Annotations["interfaces"] == "1"
	})
}

// The node's object says both the MTU and the physical networks, also if there are none.
func TestNodePhysicalNetworks(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.NodeMTU(1300)
	for value, call := range map[string]string{
		"lab,office": "annotate node n1 map[coelan.io/mtu:1300 coelan.io/physical-networks:lab,office]",
		"":           "annotate node n1 map[coelan.io/mtu:1300 coelan.io/physical-networks:]",
	} {
		w.NodePhysicalNetworks(value)
		kubetest.Eventually(t, "the node says "+value, func() bool { return slices.Contains(w.api.Calls(), call) })
	}
}

// The node's object says the MTU once the API is there.
func TestNodeMTU(t *testing.T) {
	w := newWorld(t)
	w.api.SetAway(true)
	w.run()
	w.NodeMTU(1300)
	const call = "annotate node n1 map[coelan.io/mtu:1300]"
	calls := func() int {
		n := 0
		for _, c := range w.api.Calls() {
			if c == call {
				n++
			}
		}
		return n
	}
	kubetest.Eventually(t, "it is tried", func() bool { return calls() > 0 })
	w.api.SetAway(false)
	before := calls()
	kubetest.Eventually(t, "it is tried again", func() bool { return calls() > before })
}

// A Port that asks for a port of Neutron stays until its attachment has one in its place, or it is
// withdrawn; one that an agent has left that is gone is removed at the start.
func TestAsk(t *testing.T) {
	const id = "a28c7404-7495-4557-b7fc-3e293508dbc6"
	w := newWorld(t)
	spec := func(pod string) attachment.Attachment {
		return attachment.Attachment{FixedAddresses: true, Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: pod, IfName: "net1"}, PodNamespace: "shop", PodName: pod, PodUID: "uid-" + pod,
			NetworkName: "lan", NetworkID: 2, BlockSpace: true, PortName: pod + ".net1", NeutronPort: id,
		}}
	}
	left := translate.PodPort(spec("left"), "n1", "uid-left")
	w.api.Add(left)
	w.run()
	kubetest.Eventually(t, "what is left is gone", func() bool { return w.port("shop/left.net1") == nil })

	uid, err := w.Ask(t.Context(), spec("p"))
	if err != nil {
		t.Fatal(err)
	}
	asks := w.port("shop/p.net1")
	if asks == nil || asks.UID != uid || asks.Spec.NeutronPort != id || asks.Spec.MAC != "" || len(asks.Spec.Addresses) > 0 ||
		asks.Status.Node != "" {
		t.Fatalf("%+v", asks)
	}
	w.Changed(spec("p")) // as a resync does
	if again, err := w.Ask(t.Context(), spec("p")); err != nil || again != uid {
		t.Errorf("asked again: %q, %v; it was %q", again, err, uid)
	}

	mac := intent.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}
	at, err := w.store.Allocate(attachment.Plan{
		Spec: spec("p").Spec, Requested: attachment.Requested{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, MAC: &mac},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Write(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		p := w.port("shop/p.net1")
		if p.Spec.NeutronPort != id || p.Spec.MAC != mac.String() || !slices.Equal(p.Spec.Addresses, []string{"10.0.0.9"}) ||
			p.Status.Node != "n1" || p.Labels[v1alpha1.LabelPodPort] != "" {
			t.Errorf("%+v", p)
		}
	}
	other := spec("p")
	other.ContainerID = "p-again"
	if _, err := w.Ask(t.Context(), other); err == nil || !strings.Contains(err.Error(), "still that of container p") {
		t.Errorf("a second container of the pod asks: %v", err)
	}

	if _, err := w.Ask(t.Context(), spec("q")); err != nil {
		t.Fatal(err)
	}
	w.Remove(spec("q"))
	kubetest.Eventually(t, "the Port is withdrawn", func() bool { return w.port("shop/q.net1") == nil })
	if w.port("shop/p.net1") == nil {
		t.Error("so is the other one")
	}
}

// meeting has the first two calls that read a Port return together.
type meeting struct {
	*kubetest.API
	calls atomic.Int32
	both  sync.WaitGroup
}

func (m *meeting) Port(ctx context.Context, namespace, name string) (*v1alpha1.Port, error) {
	p, err := m.API.Port(ctx, namespace, name)
	if m.calls.Add(1) <= 2 {
		m.both.Done()
		m.both.Wait()
	}
	return p, err
}

// ADD and the queue write the Port of a new pod at the same time, also in place of a former pod's.
func TestFormerPortIsReplacedByTwo(t *testing.T) {
	w := newWorld(t)
	t.Cleanup(w.queue.ShutDown)
	w.api.Add(translate.PodPort(w.attach("p", "former", "lan"), "n1", "former"))
	at := w.attach("p", "new", "lan")
	m := &meeting{API: w.api}
	m.both.Add(2)
	w.API = m
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			if err := w.Write(t.Context(), at); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if now := w.port(at.PortKey()); now == nil || now.Spec.Pod.UID != "new" || now.Status.Phase != v1alpha1.PortBound {
		t.Errorf("there is the Port %+v", now)
	}
}
