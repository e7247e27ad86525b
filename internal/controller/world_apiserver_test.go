// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/controller/reconcile"
)

// asController is set in the environment of a copy of this test that is to be a controller, so that
// it can be killed: to the path of a kubeconfig.
const asController = "COELAN_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if path := os.Getenv(asController); path != "" {
		runAlone(path)
		return
	}
	controller.LogTo(slog.New(slog.DiscardHandler))
	// glog, which the YANG library logs by, begins a goroutine when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// It waits on a channel of a closed client that libovsdb (v0.8.1) never closes.
		goleak.IgnoreTopFunction("github.com/ovn-kubernetes/libovsdb/client.(*ovsdbClient).watchForLeaderChange.func2"))
}

func runAlone(kubeconfig string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		o := testOptions(os.Stderr)
		controller.LogTo(o.Log)
		o.REST, o.LeaderElect = config, true
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err = controller.Run(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func testOptions(log *os.File) controller.Options {
	o := controller.DefaultOptions()
	o.MetricsBindAddress, o.LeaderElectionNamespace, o.UsageInterval = "0", "kube-system", 100*time.Millisecond
	o.PolicyBindAddress, o.PolicyInterval, o.Socket = "0", 20*time.Millisecond, ""
	o.LeaderElect = false
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	return o
}

// world is an API with a controller that can be started and stopped, and what tests do with it.
type world struct {
	*testing.T
	api    *apitest.API
	client client.Client
}

func newWorld(t *testing.T, api *apitest.API) *world {
	t.Helper()
	c, err := client.New(api.REST, client.Options{Scheme: reconcile.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, api: api, client: c}
	t.Cleanup(w.clear)
	return w
}

// start runs a controller until stop, or the end of the test.
func (w *world) start(change func(*controller.Options)) (stop func()) {
	w.Helper()
	log, err := os.CreateTemp(w.TempDir(), "controller")
	if err != nil {
		w.Fatal(err)
	}
	o := testOptions(log)
	o.REST = w.api.REST
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			w.Errorf("the controller: %v", err)
		}
		log.Close()
		if w.Failed() {
			text, _ := os.ReadFile(log.Name())
			w.Logf("the controller's log:\n%s", text)
		}
	}
	w.Cleanup(stop)
	return stop
}

func byNamespaceMapping(o *controller.Options) { o.Mapping = config.MapNamespace }

// clear removes everything but namespaces, for the next test.
func (w *world) clear() {
	ctx := context.Background()
	for _, list := range []client.ObjectList{
		&v1alpha1.NodeNetworkConfigList{}, &v1alpha1.EgressList{}, &v1alpha1.FloatingIPList{}, &v1alpha1.PortList{}, &v1alpha1.AddressBlockList{}, &v1alpha1.NetworkList{}, &v1alpha1.RouterList{}, &corev1.PodList{}, &corev1.NodeList{},
		&corev1.ServiceList{}, &v1alpha1.LoadBalancerPoolList{}, &networkingv1.NetworkPolicyList{}, &v1alpha1.SecurityGroupList{},
	} {
		if err := w.client.List(ctx, list); err != nil {
			w.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			w.Fatal(err)
		}
		for _, item := range items {
			o := item.(client.Object)
			if len(o.GetFinalizers()) > 0 {
				before := o.DeepCopyObject().(client.Object)
				o.SetFinalizers(nil)
				w.ignoreGone(w.client.Patch(ctx, o, client.MergeFrom(before)))
			}
			w.ignoreGone(w.client.Delete(ctx, o, client.GracePeriodSeconds(0)))
		}
	}
}

func (w *world) ignoreGone(err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		if err := w.client.Create(w.Context(), o); err != nil {
			w.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// status writes an object's status.
func (w *world) status(o client.Object, set func()) {
	w.Helper()
	before := o.DeepCopyObject().(client.Object)
	set()
	if err := w.client.Status().Patch(w.Context(), o, client.MergeFrom(before)); err != nil {
		w.Fatalf("status of %s: %v", o.GetName(), err)
	}
}

func (w *world) delete(o client.Object) {
	w.Helper()
	if err := w.client.Delete(w.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		w.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// get reads an object; false if it is not there.
func (w *world) get(o client.Object) bool {
	w.Helper()
	err := w.client.Get(w.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return false
	}
	if err != nil {
		w.Fatal(err)
	}
	return true
}

// patience is how long something that happens at once may take on a busy machine.
const patience = 20 * time.Second

// until waits until a check says nothing, or fails with what it said last.
func (w *world) until(check func() string) {
	w.Helper()
	w.within(patience, check)
}

func (w *world) within(bound time.Duration, check func() string) {
	w.Helper()
	deadline := time.Now().Add(bound)
	for {
		text := check()
		if text == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("after %v: %s", bound, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settles waits until a check says nothing, and goes on to for some time: nothing is undone.
func (w *world) settles(check func() string) {
	w.Helper()
	const long = 500 * time.Millisecond
	since := time.Now()
	w.until(func() string {
		text := check()
		if text != "" {
			since = time.Now()
			return text
		}
		return want(time.Since(since) >= long, "not for long yet")
	})
}

// names of a list's objects, without those of the default objects.
func (w *world) names(list client.ObjectList) string {
	w.Helper()
	if err := w.client.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, item := range items {
		if name := item.(client.Object).GetName(); name != "default" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// objects waits until exactly these Routers and Networks are there beside the default ones.
func (w *world) objects(routers, networks string) {
	w.Helper()
	w.settles(func() string {
		r, n := w.names(&v1alpha1.RouterList{}), w.names(&v1alpha1.NetworkList{})
		if r != routers || n != networks {
			return fmt.Sprintf("Routers %q, Networks %q; want %q and %q", r, n, routers, networks)
		}
		return ""
	})
}

// ready waits until a Network has effect.
func (w *world) ready(name string) *v1alpha1.Network {
	w.Helper()
	n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.until(func() string {
		if !w.get(n) {
			return "network " + name + " is not there"
		}
		if n.Status.ID == 0 || !meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Sprintf("network %s: %+v", name, n.Status)
		}
		return ""
	})
	return n
}

// refused waits until a Network has a reason, and the Event that says so.
func (w *world) refused(name, reason string) {
	w.Helper()
	n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.until(func() string {
		w.get(n)
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message == "" || n.Status.ID != 0 || n.Status.VNI != 0 {
			return fmt.Sprintf("network %s: %+v, want %s", name, n.Status, reason)
		}
		return ""
	})
	w.event("Network", name, reason)
}

// event waits until there is a Warning about an object.
func (w *world) event(kind, name, reason string) {
	w.Helper()
	w.until(func() string {
		list := &corev1.EventList{}
		if err := w.client.List(w.Context(), list); err != nil {
			w.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason && e.Type == corev1.EventTypeWarning {
				return ""
			}
		}
		return fmt.Sprintf("no Event %s about %s %s", reason, kind, name)
	})
}

// port waits until a Port is as check wants it.
func (w *world) port(namespace, name string, check func(*v1alpha1.Port) bool) *v1alpha1.Port {
	w.Helper()
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.until(func() string {
		if w.get(p) && check(p) {
			return ""
		}
		return fmt.Sprintf("port %s/%s: %+v", namespace, name, p.Status)
	})
	return p
}

// failed waits until a Port has failed for a reason, and the Event that says so.
func (w *world) failed(namespace, name, reason string) {
	w.Helper()
	w.port(namespace, name, func(p *v1alpha1.Port) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return p.Status.Phase == v1alpha1.PortFailed && c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason &&
			p.Status.LastError != "" && len(p.Status.Addresses) == 0
	})
	w.event("Port", name, reason)
}

func isReady(p *v1alpha1.Port) bool {
	return p.Status.Phase == v1alpha1.PortReady && p.Status.LastError == ""
}
