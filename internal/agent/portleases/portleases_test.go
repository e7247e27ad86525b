// SPDX-License-Identifier: Apache-2.0

package portleases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the Leases of node n1 with an API, in the bubble of a test.
type world struct {
	*Leases
	*kubetest.API
	start time.Time
	stop  func()

	mu sync.Mutex
	// writes are those that succeeded, with the seconds since the start.
	writes []string
	// refuses has the API server refuse to write a Port, by its name.
	refuses string
	// hangs has calls last as long as they may.
	hangs bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{API: kubetest.New("n1"), start: time.Now()}
	w.Leases = New(slog.New(slog.DiscardHandler), "n1", w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *world) PatchPortStatus(ctx context.Context, namespace, name string, status any) error {
	w.mu.Lock()
	refuses, hangs := w.refuses == name, w.hangs
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if refuses {
		return errors.New("admission webhook denied the request")
	}
	if err := w.API.PatchPortStatus(ctx, namespace, name, status); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, fmt.Sprintf("%.1f %s %s", time.Since(w.start).Seconds(), name, w.shown(name)))
	return nil
}

// shown is the lease of a Port in the API.
func (w *world) shown(name string) string {
	o, err := w.API.Port(context.Background(), "shop", name)
	if err != nil || o.Status.Lease == nil {
		return "none"
	}
	return strings.TrimSpace(o.Status.Lease.HostName + " " + strings.Join(o.Status.Lease.Addresses, " "))
}

// wrote returns what was written since the last call.
func (w *world) wrote() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.writes
	w.writes = nil
	return list
}

func (w *world) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func (w *world) set(change func(w *world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// known are how many machines are known.
func (w *world) known() int {
	synctest.Wait()
	w.Leases.mu.Lock()
	defer w.Leases.mu.Unlock()
	return len(w.machines)
}

// add adds users' Ports that this node has bound.
func (w *world) add(names ...string) {
	var ports []metav1.Object
	for _, name := range names {
		ports = append(ports, &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
			Status:     v1alpha1.PortStatus{Node: "n1"},
		})
	}
	w.Add(ports...)
}

// asks has the machine of a Port get addresses, of the first one's family.
func (w *world) asks(name, host string, addresses ...string) {
	w.lease(name, got(strings.Contains(addresses[0], ":"), host, addresses...))
}

// gives has the machine of a Port give its addresses of a family back.
func (w *world) gives(name string, ipv6 bool) {
	w.lease(name, backend.Lease{IPv6: ipv6, Duration: time.Hour})
}

func (w *world) lease(name string, l backend.Lease) {
	l.Port = intent.Port{ID: "port/shop/" + name, Namespace: "shop", Pod: name, Object: name, UID: "uid-" + name}
	w.Set(l)
}

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm")
		w.asks("vm", "db", "10.0.0.5")
		w.expect(t, "DHCP", "0.0 vm db 10.0.0.5")
		w.asks("vm", "db.red.example", "fd00::5", "fd00::6")
		w.expect(t, "not too soon")
		time.Sleep(changePause)
		w.expect(t, "DHCPv6", "5.0 vm db 10.0.0.5 fd00::5 fd00::6")
		time.Sleep(changePause)
		w.gives("vm", false)
		w.expect(t, "one is given back", "10.0 vm db.red.example fd00::5 fd00::6")
		time.Sleep(changePause)
		w.gives("vm", true)
		w.expect(t, "the other one, too", "15.0 vm none")
		w.asks("vm", "", "10.0.0.5")
		time.Sleep(changePause)
		w.expect(t, "and it is back", "20.0 vm 10.0.0.5")
	})
}

// A machine that renews all the time is written once in a minute, with the newest times.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm")
		for range 18 { // the last time 119 seconds after the start
			w.asks("vm", "db", "10.0.0.5")
			time.Sleep(7 * time.Second)
		}
		w.expect(t, "after two minutes", "0.0 vm db 10.0.0.5", "60.0 vm db 10.0.0.5", "120.0 vm db 10.0.0.5")
		o, _ := w.API.Port(t.Context(), "shop", "vm")
		if want := w.start.Add(119 * time.Second); !o.Status.Lease.RenewTime.Time.Equal(want) || !o.Status.Lease.ExpireTime.Time.Equal(want.Add(time.Hour)) {
			t.Errorf("renewed at %v until %v, want %v", o.Status.Lease.RenewTime, o.Status.Lease.ExpireTime, want)
		}
	})
}

// A machine that says another name with each request is not written with each; the newest counts.
func TestNamesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm")
		for i := range 205 { // the last time 9.996 seconds after the start
			w.asks("vm", fmt.Sprint("n", i), "10.0.0.5")
			time.Sleep(49 * time.Millisecond)
		}
		w.expect(t, "within ten seconds", "0.0 vm n0 10.0.0.5", "5.0 vm n102 10.0.0.5", "10.0 vm n204 10.0.0.5")
		w.asks("vm", "other", "10.0.0.5")
		w.asks("vm", "n204", "10.0.0.5")
		time.Sleep(renewPause - time.Second)
		w.expect(t, "it is as it was")
	})
}

// Many machines that start at once are written one after the other, with what they said last.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines = 1000
		w := newWorld(t)
		names := make([]string, machines)
		for i := range names {
			names[i] = fmt.Sprint("vm", i)
		}
		w.add(names...)
		for _, host := range []string{"first", "second"} {
			for _, name := range names {
				w.asks(name, host, "10.0.0.5")
			}
		}
		time.Sleep(pace / 2)
		all := w.wrote()
		for range machines / 5 {
			n := len(w.Calls())
			time.Sleep(time.Second)
			list := w.wrote()
			// A read and a write each; what is shown is one more read.
			if calls := len(w.Calls()) - n; len(list) > 5 || calls > 3*5 {
				t.Fatalf("%d written, %d calls in a second", len(list), calls)
			}
			all = append(all, list...)
		}
		seen := map[string]bool{}
		for _, text := range all {
			// The first one was written before it said something else.
			name := strings.Fields(text)[1]
			if name != names[0] && (seen[name] || !strings.HasSuffix(text, "second 10.0.0.5")) {
				t.Errorf("%s, written before: %v", text, seen[name])
			}
			seen[name] = true
		}
		if len(seen) != machines {
			t.Errorf("%d of %d machines are written", len(seen), machines)
		}
	})
}

// While the API is away it is not asked all the time; what machines said last is written when it is
// back, and nothing of what they have given back meanwhile.
func TestWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm", "gone", "late")
		w.SetAway(true)
		for i := range 100 {
			w.asks("vm", fmt.Sprint("n", i), "10.0.0.5")
			w.asks("gone", "", "10.0.0.6")
			time.Sleep(3 * time.Second)
		}
		w.gives("gone", false)
		w.asks("late", "", "10.0.0.7")
		if n := len(w.Calls()); n < 10 || n > 5*60/6 {
			t.Errorf("the API was asked %d times in five minutes", n)
		}
		w.SetAway(false)
		time.Sleep(30 * time.Second)
		list := w.wrote()
		slices.SortFunc(list, func(a, b string) int { return strings.Compare(a[strings.Index(a, " "):], b[strings.Index(b, " "):]) })
		for i, want := range []string{"late 10.0.0.7", "vm n99 10.0.0.5"} {
			if i >= len(list) || !strings.HasSuffix(list[i], " "+want) {
				t.Errorf("written: %q, want %s", list, want)
			}
		}
		if len(list) != 2 {
			t.Errorf("written: %q", list)
		}
	})
}

// A Port that cannot be written does not keep others from it, and is tried again.
func TestRefusedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("bad", "vm", "other")
		w.set(func(w *world) { w.refuses = "bad" })
		w.asks("bad", "", "10.0.0.4")
		w.asks("vm", "", "10.0.0.5")
		w.asks("other", "", "10.0.0.6")
		time.Sleep(2 * time.Second)
		if list := w.wrote(); len(list) != 2 {
			t.Errorf("written: %q", list)
		}
		w.set(func(w *world) { w.refuses = "" })
		time.Sleep(failPause)
		if list := w.wrote(); len(list) != 1 || !strings.HasSuffix(list[0], " bad 10.0.0.4") {
			t.Errorf("written: %q", list)
		}
	})
}

// A Port that is gone, was made anew, or is another node's is left alone.
func TestPortsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "moved", UID: "uid-moved"}, Status: v1alpha1.PortStatus{Node: "n2"},
		})
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "anew", UID: "another"}, Status: v1alpha1.PortStatus{Node: "n1"},
		})
		for _, name := range []string{"gone", "moved", "anew"} {
			w.asks(name, "", "10.0.0.5")
		}
		time.Sleep(time.Minute)
		w.expect(t, "of others")
		if n := w.known(); n != 0 {
			t.Errorf("%d machines are known", n)
		}
	})
}

// A Port that was made anew under its name is another one, of which nothing was written yet.
func TestPortMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm")
		w.asks("vm", "db", "10.0.0.5")
		w.expect(t, "the first one", "0.0 vm db 10.0.0.5")
		w.RemovePort("shop/vm")
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm", UID: "another"}, Status: v1alpha1.PortStatus{Node: "n1"},
		})
		time.Sleep(time.Second)
		l := got(false, "db", "10.0.0.5")
		l.Port = intent.Port{ID: "port/shop/vm", Namespace: "shop", Pod: "vm", Object: "vm", UID: "another"}
		w.Set(l)
		w.expect(t, "the next one", "1.0 vm db 10.0.0.5")
	})
}

// The Ports of pods are known by their names, and may not be bound in the API yet.
func TestPodsPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm", UID: "port"}, Spec: v1alpha1.PortSpec{Pod: &v1alpha1.PortPod{UID: "mirror"}},
		})
		w.asks("vm", "", "10.0.0.5")
		w.expect(t, "of a pod", "0.0 vm 10.0.0.5")
	})
}

// The Port of a pod comes into the API after the pod has its addresses, or not at all.
func TestPodsPortComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := got(false, "", "10.0.0.5")
		for _, pod := range []string{"late", "never"} {
			l.Port = intent.Port{ID: pod + "/eth0", Namespace: "shop", Pod: pod, Interface: "eth0", UID: pod, Object: pod + ".eth0"}
			w.Set(l)
		}
		time.Sleep(absentPause / 2)
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late.eth0"}, Spec: v1alpha1.PortSpec{Pod: &v1alpha1.PortPod{UID: "late"}},
		})
		time.Sleep(2 * absentPause)
		if list := w.wrote(); len(list) != 1 || !strings.HasSuffix(list[0], " late.eth0 10.0.0.5") {
			t.Errorf("written: %q", list)
		}
		time.Sleep(2 * absentTries * absentPause)
		if n := w.known(); n != 1 {
			t.Errorf("%d machines are known", n)
		}
	})
}

// An agent that starts anew goes on with what the API has, and writes nothing that is there.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		now := metav1.Time{Time: time.Now()}
		until := metav1.Time{Time: now.Add(time.Hour)}
		w.Add(&v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm", UID: "uid-vm"},
			Status: v1alpha1.PortStatus{Node: "n1", Lease: &v1alpha1.PortLease{
				HostName: "db", Addresses: []string{"10.0.0.5", "fd00::5"}, RenewTime: &now, ExpireTime: &until,
			}},
		})
		w.asks("vm", "", "fd00::5")
		w.expect(t, "it is there already")
		time.Sleep(renewPause)
		w.asks("vm", "", "fd00::5")
		w.expect(t, "renewed", "60.0 vm db 10.0.0.5 fd00::5")
	})
}

// Machines are forgotten when what they have expires, and soon after they have given it back.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm", "brief")
		w.asks("vm", "", "10.0.0.5")
		w.asks("brief", "", "10.0.0.6")
		time.Sleep(30 * time.Minute)
		w.asks("vm", "", "10.0.0.5")
		w.gives("brief", false)
		if n := w.known(); n != 2 {
			t.Errorf("%d machines are known, want both", n)
		}
		time.Sleep(time.Minute)
		if n := w.known(); n != 1 {
			t.Errorf("%d machines are known, want the one that has an address", n)
		}
		time.Sleep(30 * time.Minute)
		if n := w.known(); n != 1 {
			t.Errorf("%d machines are known, want the one that has renewed", n)
		}
		time.Sleep(30 * time.Minute)
		if n := w.known(); n != 0 {
			t.Errorf("%d machines are known, want none", n)
		}
	})
}

// The end does not wait: neither for a call, nor for what is due later.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm", "other")
		w.set(func(w *world) { w.hangs = true })
		w.asks("vm", "", "10.0.0.5")
		w.asks("other", "", "10.0.0.6")
		time.Sleep(time.Second)
		w.stop()
		if d := time.Since(w.start); d != time.Second {
			t.Errorf("it ended after %v", d)
		}
		w.asks("vm", "", "10.0.0.7") // of no effect
		w.expect(t, "at the end")
	})
}

// A call that hangs is given up, and tried again.
func TestHangingAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add("vm")
		w.set(func(w *world) { w.hangs = true })
		w.asks("vm", "", "10.0.0.5")
		time.Sleep(writeTimeout - time.Second)
		w.set(func(w *world) { w.hangs = false })
		time.Sleep(time.Second + failPause)
		w.expect(t, "it is there again", "30.0 vm 10.0.0.5")
	})
}
