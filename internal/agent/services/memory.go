// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/statefile"
	"coelan.io/coelan/internal/trigger"
)

// Remembered is what an agent knew of Services when it ran last.
type Remembered struct {
	Ranges   []intent.ServiceRange
	Services []intent.Service
	// Listeners are node ports of these Services that processes of the host had.
	Listeners []intent.Listener
	// NodeServices are what the node served, of a release that remembered that in place of
	// Services. They are served on until the API tells of the Services.
	NodeServices []intent.NodeService
}

// Apply makes it a State's Services.
func (r Remembered) Apply(tx *intent.Tx) {
	tx.ReplaceServices(r.Services)
	tx.ReplaceListeners(r.Listeners)
	for _, v := range r.NodeServices {
		tx.SetNodeService(v)
	}
}

// entry is a line of the file, in which later ones win: the version, which is the first; all
// ranges; all listeners; a Service as it is; or the namespace/name of one that is gone.
type entry struct {
	Version   int                    `json:"version,omitempty"`
	Ranges    *[]intent.ServiceRange `json:"ranges,omitempty"`
	Listeners *[]intent.Listener     `json:"listeners,omitempty"`
	Service   json.RawMessage        `json:"service,omitempty"`
	Gone      string                 `json:"gone,omitempty"`
}

// The versions change with the form of the lines.
const (
	nodeServiceVersion = 1 // a Service is an intent.NodeService
	memoryVersion      = 2 // a Service is an intent.Service
)

// Load reads what was remembered. A file that is not there, or of another release, is nothing; one
// that is damaged, as a crash may leave its end, is an error, with what could be read.
func Load(path string) (Remembered, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Remembered{}, nil
	}
	if err != nil {
		return Remembered{}, fmt.Errorf("remembered Services: %w", err)
	}
	defer func() { _ = f.Close() }()
	r, err := read(f)
	if err != nil {
		return r, fmt.Errorf("remembered Services: %s: %w", path, err)
	}
	return r, nil
}

func read(from io.Reader) (Remembered, error) {
	d := json.NewDecoder(bufio.NewReaderSize(from, 1<<16))
	var first entry
	if err := d.Decode(&first); err != nil {
		return Remembered{}, err
	}
	var r Remembered
	var err error
	switch first.Version {
	case memoryVersion:
		r.Services, err = readServices(d, &r, func(v intent.Service) string { return v.Namespace + "/" + v.Name })
	case nodeServiceVersion:
		r.NodeServices, err = readServices(d, &r, func(v intent.NodeService) string {
			return v.Namespace + "/" + v.Name
		})
	}
	return r, err
}

// readServices reads all lines after the first. It returns the Services, and puts
// everything else into r.
func readServices[T any](d *json.Decoder, r *Remembered, keyOf func(T) string) ([]T, error) {
	services := map[string]T{}
	all := func() []T { return slices.Collect(maps.Values(services)) }
	for {
		var e entry
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return all(), nil
		case err != nil:
			return all(), err
		}
		switch {
		case e.Ranges != nil:
			r.Ranges = *e.Ranges
		case e.Listeners != nil:
			r.Listeners = *e.Listeners
		case e.Service != nil:
			var v T
			if err := json.Unmarshal(e.Service, &v); err != nil {
				return all(), err
			}
			services[keyOf(v)] = v
		default:
			delete(services, e.Gone)
		}
	}
}

// memory writes what Services are, a while after they have changed: what is new at the end of the
// file, and the whole file anew when that has become long.
type memory struct {
	*Services
	dirty trigger.Trigger

	saved *intent.State // nil: the file has to be written whole
	size  int64         // of the file when it was written whole
	added int64         // to it since
}

func newMemory(s *Services) *memory { return &memory{Services: s, dirty: trigger.New()} }

// savePause is how long changes are gathered.
const savePause = time.Second

// run writes until ctx ends. Before the API has told of all Services, the file stays as it is: one
// of a release that remembered them in another form holds more than the intent.
func (m *memory) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.ready:
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.dirty:
		}
		retry.Sleep(ctx, savePause)
		m.save()
	}
}

// finish writes what is new when nothing changes any more.
func (m *memory) finish() {
	if !closed(m.ready) {
		return
	}
	select {
	case <-m.dirty:
		m.save()
	default:
	}
}

// save writes what is new.
func (m *memory) save() {
	if err := m.write(m.Intent.State()); err != nil {
		// The agent works on; only a start without the API server would miss this change.
		m.Log.Error("cannot write the cache of Services to disk; retried at the next change", "err", err)
		m.saved = nil
	}
}

// minAdded is how much is added to even a short file before it is written whole.
const minAdded = 1 << 20

func (m *memory) write(now *intent.State) (err error) {
	if m.saved == nil || m.added > max(m.size, minAdded) {
		if m.size, err = writeWhole(m.File, now); err == nil {
			m.saved, m.added = now, 0
		}
		return err
	}
	delta := intent.Diff(m.saved, now)
	if len(delta.Services)+len(delta.ServiceRanges)+len(delta.Listeners) == 0 {
		return nil
	}
	f, err := os.OpenFile(m.File, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	n, err := writeEntries(f, func(put func(any)) {
		if len(delta.ServiceRanges) > 0 {
			put(rangesOf(now))
		}
		if len(delta.Listeners) > 0 {
			put(listenersOf(now))
		}
		for _, key := range delta.Services {
			if v, ok := now.Services().Get(key); ok {
				put(serviceEntry{&v})
			} else {
				put(entry{Gone: key})
			}
		}
	})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		m.saved, m.added = now, m.added+n
	}
	return err
}

// writeWhole writes what is in a State, and returns how much that is. Either the old file remains,
// or the new one is whole.
func writeWhole(path string, s *intent.State) (size int64, err error) {
	err = statefile.Write(path, func(f *os.File) (err error) {
		size, err = writeEntries(f, func(put func(any)) {
			put(entry{Version: memoryVersion})
			put(rangesOf(s))
			put(listenersOf(s))
			for v := range s.Services().All() {
				put(serviceEntry{&v})
			}
		})
		return err
	})
	return size, err
}

// serviceEntry is an entry with a Service that is written without being copied.
type serviceEntry struct {
	Service *intent.Service `json:"service"`
}

func rangesOf(s *intent.State) entry {
	ranges := []intent.ServiceRange{}
	for r := range s.ServiceRanges().All() {
		ranges = append(ranges, r)
	}
	return entry{Ranges: &ranges}
}

func listenersOf(s *intent.State) entry {
	listeners := []intent.Listener{}
	for l := range s.Listeners().All() {
		listeners = append(listeners, l)
	}
	return entry{Listeners: &listeners}
}

// writeEntries writes what all puts.
func writeEntries(f *os.File, all func(put func(any))) (size int64, err error) {
	b := bufio.NewWriterSize(f, 1<<16)
	c := &counter{to: b}
	e := json.NewEncoder(c)
	all(func(x any) { err = errors.Join(err, e.Encode(x)) })
	return c.n, errors.Join(err, b.Flush())
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
