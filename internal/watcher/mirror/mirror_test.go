// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/watcher/coe"
)

// Clusters: the Mirror's own, and another at the same target.
const (
	own     = "00000000-0000-0000-0000-00000000000a"
	foreign = "00000000-0000-0000-0000-00000000000b"
)

// fake is a target in memory, which can be out of reach, slow, and refuse entries.
type fake struct {
	mu      sync.Mutex
	entries map[Ref]coe.Remote
	edits   []string
	down    bool
	refuses map[Ref]bool
	// strict refuses endpoints without their Service, which takes longer.
	strict bool
	delay  time.Duration
	// slow is how long a Put takes, and afterRead runs once when pods have been read.
	slow      time.Duration
	afterRead func()
}

var errDown = errors.New("connection refused")

func (f *fake) wait() error {
	var delay time.Duration
	f.change(func() { delay = f.delay })
	time.Sleep(delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	return nil
}

func (f *fake) Read(_ context.Context, list *coe.List) (map[string]coe.Remote, error) {
	if err := f.wait(); err != nil {
		return nil, err
	}
	all := map[string]coe.Remote{}
	var then func()
	f.change(func() {
		for ref, e := range f.entries {
			if ref.List == list {
				all[ref.Key] = e
			}
		}
		if list == coe.Pods && f.afterRead != nil {
			then, f.afterRead = f.afterRead, nil
		}
	})
	if then != nil {
		then()
	}
	return all, nil
}

func (f *fake) Put(_ context.Context, ref Ref, e coe.Entry) error {
	var slow time.Duration
	f.change(func() {
		slow = f.slow
		if f.strict && ref.List == coe.Services {
			slow *= 2
		}
	})
	time.Sleep(slow)
	if err := f.wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edits = append(f.edits, "PUT "+ref.String())
	if f.refuses[ref] || f.strict && ref.List == coe.Endpoints && f.entries[Ref{coe.Services, ref.Key}].Text == "" {
		return &RefusedError{errors.New("400")}
	}
	text, err := ref.List.Text(e)
	cluster, _ := e["cluster-id"].(string)
	f.entries[ref] = coe.Remote{Text: text, Cluster: cluster}
	return err
}

func (f *fake) Delete(_ context.Context, ref Ref) error {
	if err := f.wait(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edits = append(f.edits, "DELETE "+ref.String())
	delete(f.entries, ref)
	return nil
}

func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// scene is a Mirror of a fake, and what it reports.
type scene struct {
	t interface {
		Helper()
		Errorf(string, ...any)
		Fatal(...any)
	}
	*fake
	*Mirror
	mu      sync.Mutex
	reports []string
	wanted  map[Ref]coe.Entry
}

const reread = time.Minute

func newScene(t *testing.T) *scene {
	s := &scene{t: t, fake: &fake{entries: map[Ref]coe.Remote{}, refuses: map[Ref]bool{}}, wanted: map[Ref]coe.Entry{}}
	s.Mirror = New(Options{
		Log: slog.New(slog.DiscardHandler), Target: s.fake, ClusterID: own, Reread: reread, Workers: 3,
		Refused: func(ref Ref, _ coe.Entry, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reports = append(s.reports, ref.String()+" "+err.Error())
		},
		Written: func(Ref, time.Duration) {},
	})
	return s
}

// start runs the Mirror until the returned function is called.
func (s *scene) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}
}

func pod(key, name string) (Ref, coe.Entry) {
	return Ref{coe.Pods, key}, coe.Entry{"uid": key, "cluster-id": own, "name": name}
}

func (s *scene) want(ref Ref, e coe.Entry) {
	s.t.Helper()
	if e == nil {
		delete(s.wanted, ref)
	} else {
		s.wanted[ref] = e
	}
	if err := s.Set(ref, e); err != nil {
		s.t.Fatal(err)
	}
}

// service has a Service with endpoints.
func (s *scene) service(key, name string) {
	s.want(Ref{coe.Services, key}, coe.Entry{"uid": key, "cluster-id": own, "name": name})
	s.want(Ref{coe.Endpoints, key}, coe.Entry{"uid": key, "name": name})
}

// equal says that the target has what is wanted, and what is others'.
func (s *scene) equal(also ...Ref) {
	s.t.Helper()
	want := map[string]string{}
	for ref, e := range s.wanted {
		text, err := ref.List.Text(e)
		if err != nil {
			s.t.Fatal(err)
		}
		want[ref.String()] = text
	}
	s.change(func() {
		for _, ref := range also {
			want[ref.String()] = s.entries[ref].Text
			if s.entries[ref].Text == "" {
				s.t.Errorf("%s of another cluster is gone", ref)
			}
		}
		got := map[string]string{}
		for ref, e := range s.entries {
			got[ref.String()] = e.Text
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("the target is not as it should be (-want +got):\n%s", diff)
		}
	})
	if st := s.Status(); !st.Connected || st.Error != "" || st.OldestSeconds != 0 ||
		slices.ContainsFunc(st.Lists, func(l ListStatus) bool { return l.Pending+l.Refused > 0 }) {
		s.t.Errorf("status %+v", st)
	}
}

func (s *scene) took() []string {
	var all []string
	s.change(func() { all, s.edits = s.edits, nil })
	slices.Sort(all)
	return all
}

// Endpoints are written after their Service, and without it if that is refused.
func TestEndpointsFollowTheirService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.strict, s.slow = true, time.Second
		for i := range 5 {
			s.service(fmt.Sprint(i), fmt.Sprintf("web-%d", i))
		}
		defer s.start()()
		time.Sleep(reread / 2)
		s.service("late", "late")
		time.Sleep(reread / 4)
		s.equal()
		if len(s.reports) > 0 {
			t.Errorf("refused: %v", s.reports)
		}
		refused := Ref{coe.Services, "foul"}
		s.change(func() { s.refuses[refused], s.strict = true, false })
		s.took()
		s.service("foul", "foul")
		time.Sleep(reread / 8)
		if took := s.took(); !slices.Contains(took, "PUT "+Ref{coe.Endpoints, "foul"}.String()) {
			t.Errorf("the endpoints of a Service that is refused were not tried: %v", took)
		}
	})
}

// What the target has of this cluster and should not have goes, what is right stays untouched, and
// so does what is another cluster's.
func TestDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.want(pod("1", "same"))
		s.want(pod("2", "new"))
		s.want(pod("3", "renamed"))
		s.service("7", "web")
		s.entries = map[Ref]coe.Remote{
			{coe.Pods, "1"}:      {Text: `{"cluster-id":"` + own + `","name":"same","uid":"1"}`, Cluster: own},
			{coe.Pods, "3"}:      {Text: `{"cluster-id":"` + own + `","name":"before","uid":"3"}`, Cluster: own},
			{coe.Pods, "4"}:      {Text: `{"gone":1}`, Cluster: own},
			{coe.Pods, "5"}:      {Text: `{"theirs":1}`, Cluster: foreign},
			{coe.Pods, "6"}:      {Text: `{"of nobody":1}`},
			{coe.Services, "8"}:  {Text: `{"gone":1}`, Cluster: own},
			{coe.Endpoints, "8"}: {Text: `{"gone":1}`},
			{coe.Services, "9"}:  {Text: `{"theirs":1}`, Cluster: foreign},
			{coe.Endpoints, "9"}: {Text: `{"theirs":1}`},
		}
		defer s.start()()
		synctest.Wait()
		s.equal(Ref{coe.Pods, "5"}, Ref{coe.Pods, "6"}, Ref{coe.Services, "9"}, Ref{coe.Endpoints, "9"})
		edits := slices.Compact(s.took())
		want := []string{
			"DELETE coe/pods=4", "DELETE endpoints-info/endpoints=8", "DELETE service-information/services=8",
			"PUT coe/pods=2", "PUT coe/pods=3", "PUT endpoints-info/endpoints=7", "PUT service-information/services=7",
		}
		if diff := cmp.Diff(want, edits); diff != "" {
			t.Errorf("edits (-want +got):\n%s", diff)
		}
		ref, e := pod("2", "again")
		s.want(ref, e)
		s.want(Ref{coe.Pods, "1"}, nil)
		s.want(ref, e)
		synctest.Wait()
		if got := s.took(); !slices.Equal(got, []string{"DELETE coe/pods=1", "PUT coe/pods=2"}) {
			t.Errorf("edits after changes: %v", got)
		}
		time.Sleep(3 * reread)
		synctest.Wait()
		if got := s.took(); len(got) > 0 {
			t.Errorf("edits without a change: %v", got)
		}
	})
}

// The endpoints of a Service go before it: without it they could not be told from another cluster's
// later.
func TestEndpointsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.service("1", "web")
		defer s.start()()
		synctest.Wait()
		s.edits = nil
		s.occupy()
		s.want(Ref{coe.Services, "1"}, nil)
		s.want(Ref{coe.Endpoints, "1"}, nil)
		time.Sleep(reread)
		synctest.Wait()
		s.equal()
		service := slices.Index(s.edits, "DELETE service-information/services=1")
		if slices.Index(s.edits[:service], "DELETE endpoints-info/endpoints=1") < 0 {
			t.Errorf("edits %v", s.edits)
		}
	})
}

// occupy has all workers write something for a while.
func (s *scene) occupy() {
	s.change(func() { s.slow = 10 * time.Second })
	for i := range s.o.Workers {
		s.want(pod(fmt.Sprint("slow", i), fmt.Sprint(time.Now())))
	}
	time.Sleep(time.Second)
	s.change(func() { s.slow = 0 })
}

// What is written while the target is read is newer than what was read.
func TestChangesDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.want(pod("1", "before"))
		defer s.start()()
		synctest.Wait()
		s.change(func() {
			s.afterRead = func() {
				s.want(pod("1", "meanwhile"))
				time.Sleep(time.Second)
				s.occupy()
				s.want(pod("1", "before"))
			}
		})
		time.Sleep(reread + 30*time.Second)
		synctest.Wait()
		s.equal()
	})
}

// An entry that is refused does not hold up others. It is reported once and tried again, at once if
// it changes.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		bad, entry := pod("1", "bad")
		s.refuses[bad] = true
		s.want(bad, entry)
		s.want(pod("2", "good"))
		defer s.start()()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if n := len(s.edits); len(s.entries) != 1 || n < 8 || n > 60 {
			t.Errorf("%d entries, %d edits", len(s.entries), n)
		}
		if !slices.Equal(s.reports, []string{"coe/pods=1 400"}) {
			t.Errorf("reports %v", s.reports)
		}
		if l := s.Status().Lists[2]; l.Wanted != 2 || l.Pending != 1 || l.Refused != 1 || l.LastRefusal != "coe/pods=1: 400" {
			t.Errorf("status %+v", l)
		}
		s.change(func() { s.refuses = nil })
		s.want(pod("1", "better"))
		synctest.Wait()
		s.equal()
	})
}

// While the target is out of reach, changes are gathered; then all of them are made.
func TestOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.down = true
		s.want(pod("1", "a"))
		defer s.start()()
		time.Sleep(time.Minute)
		if st := s.Status(); st.Connected || st.Error != errDown.Error() || st.OldestSeconds < 60 {
			t.Errorf("status %+v", st)
		}
		s.change(func() { s.down = false })
		time.Sleep(2 * lastConnect)
		synctest.Wait()
		s.equal()
		s.change(func() { s.down = true })
		s.want(pod("2", "b"))
		s.want(Ref{coe.Pods, "1"}, nil)
		synctest.Wait()
		if st := s.Status(); st.Connected || st.Error != errDown.Error() {
			t.Errorf("status %+v", st)
		}
		s.change(func() { s.down = false })
		time.Sleep(2 * lastConnect)
		synctest.Wait()
		s.equal()
	})
}

// A target that has lost what it had gets it again.
func TestTargetThatForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.want(pod("1", "a"))
		s.service("2", "web")
		defer s.start()()
		synctest.Wait()
		s.change(func() { clear(s.entries) })
		time.Sleep(reread)
		synctest.Wait()
		s.equal()
	})
}

// TestFinallyEqual changes entries, takes the target out of reach, has it refuse, forget and be
// slow, and ends the Mirror, in any order.
func TestFinallyEqual(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.IntRange(0, 99), 1, 60).Draw(rt, "ops")
		keys := rapid.SliceOfN(rapid.IntRange(0, 5), len(ops), len(ops)).Draw(rt, "keys")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 3000), len(ops), len(ops)).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			theirs := Ref{coe.Pods, "theirs"}
			s.entries[theirs] = coe.Remote{Text: "{}", Cluster: foreign}
			stop := s.start()
			for i, op := range ops {
				key := fmt.Sprint(keys[i])
				switch {
				case op < 40:
					s.want(pod(key, fmt.Sprint("v", op)))
				case op < 50:
					s.want(Ref{coe.Pods, key}, nil)
				case op < 60:
					s.service(key, fmt.Sprint("v", op))
				case op < 65:
					s.want(Ref{coe.Endpoints, key}, nil)
					s.want(Ref{coe.Services, key}, nil)
				case op < 75:
					s.change(func() { s.down = !s.down })
				case op < 80:
					s.change(func() {
						clear(s.entries)
						s.entries[theirs] = coe.Remote{Text: "{}", Cluster: foreign}
					})
				case op < 85:
					s.change(func() { s.refuses[Ref{coe.Pods, key}] = true })
				case op < 90:
					s.change(func() { s.delay = time.Duration(pauses[i]) * time.Millisecond / 10 })
				case op < 95:
					time.Sleep(2 * reread)
				default:
					stop()
					next := &scene{t: t, fake: s.fake, wanted: maps.Clone(s.wanted)}
					next.Mirror = New(s.o)
					s = next
					for ref, e := range s.wanted {
						s.want(ref, e)
					}
					stop = s.start()
				}
				time.Sleep(time.Duration(pauses[i]) * time.Millisecond)
			}
			s.change(func() { s.down, s.delay = false, 0; clear(s.refuses) })
			time.Sleep(2 * lastWrite)
			synctest.Wait()
			s.equal(theirs)
			stop()
		})
	})
}
