// SPDX-License-Identifier: Apache-2.0

// Package mirror keeps a RESTCONF controller as a cluster is. It is level-triggered: at each
// connect it reads what the controller has and writes the difference, then each change. What is
// refused is tried again, later and later.
package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/internal/watcher/coe"
)

// Ref names an entry.
type Ref struct {
	List *coe.List
	Key  string
}

// String is the entry as in a path.
func (r Ref) String() string { return r.List.Container + "/" + r.List.Name + "=" + r.Key }

// Target is what a Mirror writes to. Its methods are safe for concurrent use.
type Target interface {
	// Read returns the entries of a list by key, those of other clusters as well.
	Read(ctx context.Context, list *coe.List) (map[string]coe.Remote, error)
	// Put makes or replaces an entry.
	Put(ctx context.Context, ref Ref, e coe.Entry) error
	// Delete removes an entry. One that is not there is no error.
	Delete(ctx context.Context, ref Ref) error
}

// RefusedError says that the target works, but does not take one entry. All other errors of a
// Target mean that it cannot be reached.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap is for errors.Is.
func (e *RefusedError) Unwrap() error { return e.Err }

// Options of a Mirror.
type Options struct {
	Log    *slog.Logger
	Target Target
	// ClusterID is the cluster-id of the entries that are this cluster's. Others are left alone.
	ClusterID string
	// Reread is how often the target is read without cause: it may have lost entries.
	Reread time.Duration
	// Workers is how many requests are sent at the same time.
	Workers int
	// Refused hears of an entry that is refused, once for each reason. It is nil for a deletion.
	Refused func(ref Ref, e coe.Entry, err error)
	// Written hears how long after a change the target had it.
	Written func(ref Ref, after time.Duration)
}

// Pauses between attempts: to connect, and to write an entry that was refused.
const (
	firstConnect = 200 * time.Millisecond
	lastConnect  = 30 * time.Second
	firstWrite   = time.Second
	lastWrite    = 5 * time.Minute
)

// Mirror keeps a Target as Set says. New makes it.
type Mirror struct {
	o      Options
	queue  workqueue.TypedRateLimitingInterface[Ref]
	broken trigger.Trigger

	mu    sync.Mutex
	items map[Ref]*item
	// open is closed while the target can be written to.
	open     chan struct{}
	isOpen   bool
	reads    int   // how many were begun
	err      error // why it is not open
	since    time.Time
	lastRead time.Time
	wrote    bool // since the last pause
}

// item is an entry that is wanted, or that the target has.
type item struct {
	entry coe.Entry
	want  string // its text; empty: it is not wanted
	have  string // what the target has; empty: nothing
	known bool   // whether have is known

	changed time.Time // of the oldest change that the target does not have
	busy    bool      // it is being written
	written int       // the newest read that had begun when it was last written
	refused error
}

// New makes a Mirror that wants nothing yet.
func New(o Options) *Mirror {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[Ref](firstWrite, lastWrite)
	return &Mirror{
		o: o, queue: workqueue.NewTypedRateLimitingQueue[Ref](limiter), broken: trigger.New(),
		items: map[Ref]*item{}, open: make(chan struct{}), since: time.Now(),
	}
}

// Set says what an entry is to be; nil: it is not to be.
func (m *Mirror) Set(ref Ref, e coe.Entry) error {
	var want string
	if e != nil {
		var err error
		if want, err = ref.List.Text(e); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[ref]
	if it == nil {
		if e == nil {
			return nil
		}
		it = &item{}
		m.items[ref] = it
	}
	if it.want == want && (it.known || it.entry != nil) {
		return nil
	}
	it.entry, it.want = e, want
	if it.changed.IsZero() {
		it.changed = time.Now()
	}
	m.queue.Forget(ref) // what was refused may be right now
	m.queue.Add(ref)
	return nil
}

// Run connects and writes until ctx ends. Before, Set has been called for all that there is: what
// the target has beyond it is deleted.
func (m *Mirror) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		m.queue.ShutDown()
		return nil
	})
	g.Go(func() error { return m.connect(ctx) })
	for range m.o.Workers {
		g.Go(func() error { return m.work(ctx) })
	}
	return g.Wait()
}

// connect reads the target, at first, after each failure, and from time to time.
func (m *Mirror) connect(ctx context.Context) error {
	backoff := retry.New(firstConnect, lastConnect)
	for {
		err := m.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			m.connected()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(m.o.Reread):
				backoff.Reset()
				continue
			case <-m.broken:
			}
		} else {
			m.disconnected(err)
		}
		if m.hasWritten() {
			backoff.Reset()
		}
		if !backoff.Wait(ctx) {
			return nil
		}
	}
}

// read compares what the target has with what is wanted.
func (m *Mirror) read(ctx context.Context) error {
	m.mu.Lock()
	m.reads++
	this := m.reads
	m.mu.Unlock()
	all := map[*coe.List]map[string]coe.Remote{}
	for _, list := range coe.Lists {
		entries, err := m.o.Target.Read(ctx, list)
		if err != nil {
			return err
		}
		all[list] = entries
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for list, entries := range all {
		for key, e := range entries {
			cluster := e.Cluster
			if list == coe.Endpoints {
				cluster = all[coe.Services][key].Cluster
			}
			ref := Ref{list, key}
			if m.items[ref] == nil && cluster == m.o.ClusterID {
				m.items[ref] = &item{changed: time.Now()}
			}
		}
	}
	for ref, it := range m.items {
		// What was written meanwhile is newer than what was read.
		if it.busy || it.written >= this {
			continue
		}
		it.have, it.known = all[ref.List][ref.Key].Text, true
		if it.have != it.want {
			if it.changed.IsZero() {
				it.changed = time.Now()
			}
			m.queue.Add(ref)
		}
	}
	m.lastRead = time.Now()
	return nil
}

// connected lets the workers write.
func (m *Mirror) connected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = nil
	if m.isOpen {
		return
	}
	m.isOpen, m.since = true, time.Now()
	close(m.open)
	m.o.Log.Info("connected to the RESTCONF controller", "entries", len(m.items))
}

// disconnected has the workers wait.
func (m *Mirror) disconnected(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isOpen || m.err == nil || m.err.Error() != err.Error() {
		m.o.Log.Warn("the RESTCONF controller cannot be reached, retrying", "err", err)
	}
	m.err = err
	if m.isOpen {
		m.isOpen, m.since = false, time.Now()
		m.open = make(chan struct{})
	}
}

// hasWritten says whether anything was written since it was last asked.
func (m *Mirror) hasWritten() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wrote := m.wrote
	m.wrote = false
	return wrote
}

// work writes what is queued.
func (m *Mirror) work(ctx context.Context) error {
	for {
		ref, down := m.queue.Get()
		if down {
			return nil
		}
		m.mu.Lock()
		open := m.open
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			m.queue.Done(ref)
			return nil
		case <-open:
		}
		m.write(ctx, ref)
		m.queue.Done(ref)
	}
}

// write brings one entry about.
func (m *Mirror) write(ctx context.Context, ref Ref) {
	m.mu.Lock()
	it := m.items[ref]
	if it == nil || it.known && it.have == it.want {
		m.settle(ref, it)
		m.mu.Unlock()
		return
	}
	if m.awaitsService(ref, it) {
		m.mu.Unlock()
		return
	}
	entry, want := it.entry, it.want
	it.busy = true
	m.mu.Unlock()

	var err error
	if entry != nil {
		err = m.o.Target.Put(ctx, ref, entry)
	} else {
		err = m.delete(ctx, ref)
	}

	m.mu.Lock()
	it.busy, it.written = false, m.reads
	refused, news := new(RefusedError), false
	switch {
	case err == nil:
		it.have, it.known, m.wrote = want, true, true
		if it.want == want { // else Set has queued it again
			m.settle(ref, it)
		}
	case errors.As(err, &refused):
		news = it.refused == nil || it.refused.Error() != err.Error()
		it.refused, it.known, m.wrote = err, false, true
	}
	endpoints := Ref{coe.Endpoints, ref.Key}
	followed := ref.List == coe.Services && (err == nil || it.refused != nil) && m.items[endpoints] != nil
	m.mu.Unlock()
	if followed {
		m.queue.Add(endpoints)
	}
	switch {
	case err == nil:
	case errors.As(err, &refused):
		if news {
			m.o.Refused(ref, entry, err)
		}
		m.queue.AddRateLimited(ref)
	default:
		m.queue.Add(ref) // it waits for the next connection
		if ctx.Err() == nil {
			m.disconnected(err)
			m.broken.Fire()
		}
	}
}

// awaitsService reports whether endpoints have to wait for their Service, which is on its way: a
// controller that compares the two refuses them before. They are queued again when it is there, or
// refused.
func (m *Mirror) awaitsService(ref Ref, it *item) bool {
	if ref.List != coe.Endpoints || it.entry == nil {
		return false
	}
	service := m.items[Ref{coe.Services, ref.Key}]
	return service != nil && service.entry != nil && service.have == "" && service.refused == nil
}

// delete removes an entry. A Service's endpoints go first: only it says which cluster they are of.
func (m *Mirror) delete(ctx context.Context, ref Ref) error {
	if ref.List == coe.Services {
		endpoints := Ref{coe.Endpoints, ref.Key}
		m.mu.Lock()
		it := m.items[endpoints]
		unwanted := it != nil && it.entry == nil
		m.mu.Unlock()
		if unwanted {
			if err := m.o.Target.Delete(ctx, endpoints); err != nil {
				return err
			}
		}
	}
	return m.o.Target.Delete(ctx, ref)
}

// settle notes that the target has an entry as it is wanted.
func (m *Mirror) settle(ref Ref, it *item) {
	m.queue.Forget(ref)
	if it == nil {
		return
	}
	if !it.changed.IsZero() {
		m.o.Written(ref, time.Since(it.changed))
	}
	it.changed, it.refused = time.Time{}, nil
	if it.want == "" {
		delete(m.items, ref)
	}
}
