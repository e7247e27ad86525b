// SPDX-License-Identifier: Apache-2.0

package portleases

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
)

// API is where Ports are. Its errors are those of package apierrors.
type API interface {
	Port(ctx context.Context, namespace, name string) (*v1alpha1.Port, error)
	PatchPortStatus(ctx context.Context, namespace, name string, status any) error
}

// The bounds of what is written. Each write reads the Port before.
const (
	// pace is the least time between two Ports, which makes five in a second.
	pace = 200 * time.Millisecond
	// renewPause is the least time between two writes of a Port of which only the times differ;
	// changePause is that of others, since a machine may say another name with each request.
	renewPause  = time.Minute
	changePause = 5 * time.Second
)

// The pauses after failed writes, and the bound of one write.
const (
	minRetry     = 200 * time.Millisecond
	maxRetry     = 10 * time.Second
	writeTimeout = 20 * time.Second
	// failPause is that of the Port: others are tried before.
	failPause = 10 * time.Second
	// The Port of a pod comes into the API after the pod has its addresses: it is looked for as
	// many times.
	absentPause = time.Second
	absentTries = 30
)

// Leases are those of one node's Ports. They are safe for concurrent use.
type Leases struct {
	log   *slog.Logger
	node  string
	api   API
	queue workqueue.TypedDelayingInterface[string] // the Ports' namespace/name

	mu       sync.Mutex
	machines map[string]*machine // by the Ports' namespace/name
}

// machine is what is known of a Port's machine, until what it has expires.
type machine struct {
	grants
	port intent.Port
	// changed says that something is to be written, but not before retry.
	changed bool
	retry   time.Time
	// last is what was written at that time.
	last    *v1alpha1.PortLease
	written time.Time
	// absent counts how often the Port was not in the API.
	absent int
}

// due is when something is to be written, or, if nothing is, when the machine can be forgotten. One
// that has given all back is remembered until it could be written again.
func (m *machine) due(now time.Time) time.Time {
	l := m.lease(now)
	switch {
	case !m.changed && l != nil:
		return m.expires()
	case m.changed && renewal(l, m.last):
		return latest(m.written.Add(renewPause), m.retry)
	}
	return latest(m.written.Add(changePause), m.retry)
}

// New makes Leases of which none is known.
func New(log *slog.Logger, node string, api API) *Leases {
	return &Leases{
		log: log, node: node, api: api, machines: map[string]*machine{},
		queue: workqueue.NewTypedDelayingQueue[string](),
	}
}

// Set takes what a machine has got or given back now. It does not block.
func (l *Leases) Set(n backend.Lease) {
	key := n.Port.ObjectKey()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.machines[key]
	if m == nil || m.port.ID != n.Port.ID || m.port.UID != n.Port.UID {
		m = &machine{port: n.Port}
		l.machines[key] = m
	}
	m.add(n, time.Now())
	m.changed = true
	l.queue.Add(key)
}

// Run writes until ctx ends.
func (l *Leases) Run(ctx context.Context) error {
	context.AfterFunc(ctx, l.queue.ShutDown) // ends Get
	defer l.queue.ShutDown()
	backoff := retry.New(minRetry, maxRetry)
	for {
		key, down := l.queue.Get()
		if down || ctx.Err() != nil {
			return nil
		}
		pause := time.Duration(0)
		if m := l.next(key); m != nil {
			pause = pace
			if err := l.sync(ctx, key, m); err == nil {
				backoff.Reset()
			} else if ctx.Err() == nil {
				l.log.Warn("cannot write into a Port's status what its machine has got by DHCP, retrying", "err", err)
				l.again(key, m, failPause)
				pause = backoff.Next()
			}
		}
		l.queue.Done(key)
		if !retry.Sleep(ctx, pause) {
			return nil
		}
	}
}

// next is the machine of a Port if something of it is to be written now; else nil. It comes back to
// the Port when that is due, and forgets the machine when it can be.
func (l *Leases) next(key string) *machine {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.machines[key]
	if m == nil {
		return nil
	}
	if left := m.due(now).Sub(now); left > 0 {
		l.queue.AddAfter(key, left)
		return nil
	}
	if !m.changed {
		delete(l.machines, key)
		return nil
	}
	return m
}

// again has a machine tried again that could not be written.
func (l *Leases) again(key string, m *machine, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.changed, m.retry = true, time.Now().Add(pause)
	l.queue.Add(key)
}

// comes says whether the Port of a machine, which is not in the API, may still come there.
func (l *Leases) comes(m *machine) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.absent++
	return m.port.Interface != "" && m.absent < absentTries
}

// sync writes what a machine has into its Port, if this node still has that.
func (l *Leases) sync(ctx context.Context, key string, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(key, "/")
	o, err := l.api.Port(ctx, namespace, name)
	if apierrors.IsNotFound(err) && l.comes(m) {
		l.again(key, m, absentPause)
		return nil
	}
	if apierrors.IsNotFound(err) || err == nil && !l.has(o, m.port) {
		l.forget(key, m)
		return nil
	}
	if err == nil {
		err = l.write(ctx, m, o)
	}
	if err != nil {
		return fmt.Errorf("status of port %s: %w", key, err)
	}
	return nil
}

// has says whether an object is the Port of a machine of this node, and no other node has bound it
// meanwhile. The Ports of pods are those of the same name.
func (l *Leases) has(o *v1alpha1.Port, p intent.Port) bool {
	return (o.Status.Node == "" || o.Status.Node == l.node) && (o.Spec.Pod != nil || string(o.UID) == p.UID)
}

// forget drops what is known of a machine, unless its Port's name has another one by now.
func (l *Leases) forget(key string, m *machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machines[key] == m {
		delete(l.machines, key)
	}
}

// write writes what a machine has now into its Port.
func (l *Leases) write(ctx context.Context, m *machine, o *v1alpha1.Port) error {
	l.mu.Lock()
	m.restore(o.Status.Lease)
	want := m.lease(time.Now())
	m.changed = false
	l.mu.Unlock()
	if !same(want, o.Status.Lease) {
		if err := l.api.PatchPortStatus(ctx, o.Namespace, o.Name, patch(want)); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.last, m.written = want, time.Now()
	l.queue.Add(m.port.ObjectKey())
	return nil
}
