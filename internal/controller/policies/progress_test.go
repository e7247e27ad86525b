// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/policy"
)

func podAt(version uint64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: strconv.FormatUint(version, 10)}}
}

func podsAt(version uint64, items ...uint64) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}}
	for _, v := range items {
		list.Items = append(list.Items, *podAt(v))
	}
	return list
}

// A view contains what is applied, and not what is on its way.
func TestProgress(t *testing.T) {
	p := NewProgress(reconcile.NewScheme())
	p.use(&corev1.Pod{}, true)
	expect := func(what string, changed, seen uint64) {
		t.Helper()
		want := policy.Basis{"Pod": {Changed: changed, Seen: seen}}
		if diff := cmp.Diff(want, p.Basis()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	event := func(kind watch.EventType, version uint64) {
		p.sent("Pod", watch.Event{Type: kind, Object: podAt(version)})
	}
	expect("nothing is known", 0, 0)
	p.listed("Pod", podsAt(100, 40, 70))
	expect("a list is sent", 0, 0)
	p.note(podAt(40))
	p.apply(p.noted())
	expect("a part of it is applied", 40, 40)
	p.note(podAt(70))
	expect("the rest is noted", 40, 40)
	p.apply(p.noted())
	expect("all of it is applied", 70, 100)
	event(watch.Modified, 110)
	expect("an event is sent", 70, 70)
	noted := p.noted()
	p.note(podAt(110))
	p.apply(noted)
	expect("what was noted before is applied", 70, 70)
	p.apply(p.noted())
	expect("the event is applied", 110, 110)
	event(watch.Bookmark, 150)
	expect("a bookmark", 110, 150)
	event(watch.Deleted, 160)
	p.note(podAt(160))
	p.apply(p.noted())
	expect("a deletion", 160, 160)
	p.listed("Pod", podsAt(200, 40))
	expect("a list after a deletion", 160, 200)
	event(watch.Deleted, 210)
	expect("a deletion that nothing notes", 160, 160)
	p.noteUpTo(&corev1.Pod{}, p.passed(&corev1.Pod{}))
	p.apply(p.noted())
	expect("all objects were noted after it", 210, 210)
	event(watch.Bookmark, 220)
	p.sent("Node", watch.Event{Type: watch.Added, Object: &corev1.Node{}})
	expect("a kind that policies do not depend on", 210, 220)
	p.listed("Pod", podsAt(50, 45))
	expect("the API was restored from a backup", 45, 50)
	p.use(&corev1.Pod{}, false)
	if b := p.Basis(); len(b) != 0 {
		t.Errorf("a kind that is used no more: %v", b)
	}
}

// The informer gets all that is sent, and what it gets is followed.
func TestProgressOfAnInformer(t *testing.T) {
	p := NewProgress(reconcile.NewScheme())
	p.use(&corev1.Pod{}, true)
	events := watch.NewFakeWithChanSize(10, false)
	lw := &toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return podsAt(100, 70), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	informer := p.NewInformer(lw, &corev1.Pod{}, 0, toolscache.Indexers{})
	applied := make(chan policy.Basis, 10)
	note := func(o any) {
		p.note(o.(*corev1.Pod))
		p.apply(p.noted())
		applied <- p.Basis()
	}
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, o any) { note(o) }, DeleteFunc: note,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	expect := func(changed, seen uint64) {
		t.Helper()
		select {
		case got := <-applied:
			if diff := cmp.Diff(policy.Basis{"Pod": {Changed: changed, Seen: seen}}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		case <-time.After(time.Minute):
			t.Fatal("the informer says nothing")
		}
	}
	expect(70, 100)
	events.Modify(podAt(110))
	expect(110, 110)
	changed := p.Changed()
	events.Action(watch.Bookmark, podAt(150))
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("a bookmark changes nothing")
	}
	if b := p.Basis(); b["Pod"].Seen != 150 {
		t.Errorf("%v", b)
	}
	events.Delete(podAt(160))
	expect(160, 160)
}

// versions is an API server that says of all kinds how new they are.
type versions struct {
	client.Reader
	now   atomic.Uint64
	away  atomic.Bool
	asked atomic.Int32
}

func (v *versions) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	v.asked.Add(1)
	if v.away.Load() {
		return errors.New("the API server is away")
	}
	list.SetResourceVersion(strconv.FormatUint(v.now.Load(), 10))
	return nil
}

// A replica is behind if it has not seen for minutes what the API server had; not if nothing
// happens, nor if the API server is away.
func TestFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, api := NewProgress(reconcile.NewScheme()), &versions{}
		api.now.Store(100)
		p.use(&corev1.Pod{}, true)
		p.listed("Pod", podsAt(100))
		var reasons atomic.Value
		reasons.Store("")
		f := &freshness{
			viewSource: newViewSource(p, api), log: slog.New(slog.DiscardHandler), targets: map[string]answer{},
			behind: func(reason string) { reasons.Store(reason) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { f.run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		expect := func(what string, after time.Duration, behind bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			reason := reasons.Load().(string)
			if (reason != "") != behind || behind && !strings.Contains(reason, "Pod: changes are seen up to resource version") {
				t.Errorf("%s: %q", what, reason)
			}
		}
		expect("nothing happens", time.Hour, false)
		// A bookmark comes a minute late, each time.
		for range 10 {
			api.now.Add(10)
			expect("bookmarks come", freshnessInterval, false)
			p.sent("Pod", watch.Event{Type: watch.Bookmark, Object: podAt(api.now.Load())})
		}
		api.now.Add(10)
		expect("the watch stands still for a moment", staleAfter, false)
		expect("the watch stands still", 2*freshnessInterval, true)
		p.sent("Pod", watch.Event{Type: watch.Bookmark, Object: podAt(api.now.Load())})
		expect("the watch goes on", freshnessInterval, false)
		api.away.Store(true)
		expect("the API server is away", time.Hour, false)
	})
}

// What agents say cannot have the API server asked again and again.
func TestNewestIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &versions{}
		api.now.Store(100)
		s := newViewSource(NewProgress(reconcile.NewScheme()), api)
		for range 10 {
			if v, err := s.Newest(t.Context(), "NetworkPolicy.networking.k8s.io"); err != nil || v != 100 {
				t.Errorf("%d, %v", v, err)
			}
		}
		if asked := api.asked.Load(); asked != 1 {
			t.Errorf("the API server is asked %d times", asked)
		}
		time.Sleep(answerAge)
		api.now.Store(200)
		if v, err := s.Newest(t.Context(), "NetworkPolicy.networking.k8s.io"); err != nil || v != 200 {
			t.Errorf("%d, %v", v, err)
		}
		if _, err := s.Newest(t.Context(), "Secret"); err == nil {
			t.Error("any kind can be asked for")
		}
	})
}
