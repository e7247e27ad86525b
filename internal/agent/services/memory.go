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
	"os"
	"path/filepath"
	"time"

	"coelan.io/coelan/internal/intent"
)

// Remembered is what an agent knew of Services when it ran last.
type Remembered struct {
	Ranges   []intent.ServiceRange
	Services []intent.Service
}

// header is the first line of the file; each further one is a Service.
type header struct {
	Version int                   `json:"version"`
	Ranges  []intent.ServiceRange `json:"ranges"`
}

// memoryVersion changes with the form of the lines.
const memoryVersion = 1

// Load reads what was remembered. A file that is not there, or of another release, is nothing; one that ends early, or is
// damaged, is an error, with what could be read.
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
	var h header
	if err := d.Decode(&h); err != nil {
		return Remembered{}, err
	}
	if h.Version != memoryVersion {
		return Remembered{}, nil
	}
	r := Remembered{Ranges: h.Ranges}
	for {
		var v intent.Service
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return r, err
		}
		r.Services = append(r.Services, v)
	}
}

// save writes what is in a State. Either the old file remains, or the new one is whole.
func save(path string, s *intent.State) error {
	f, err := os.CreateTemp(filepath.Dir(path), "services-*")
	if err != nil {
		return err
	}
	err = write(f, s)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func write(to io.Writer, s *intent.State) error {
	b := bufio.NewWriterSize(to, 1<<16)
	e := json.NewEncoder(b)
	h := header{Version: memoryVersion}
	for r := range s.ServiceRanges().All() {
		h.Ranges = append(h.Ranges, r)
	}
	if err := e.Encode(h); err != nil {
		return err
	}
	for v := range s.Services().All() {
		if err := e.Encode(v); err != nil {
			return err
		}
	}
	return b.Flush()
}

// memory writes what Services are, a while after they have changed.
type memory struct {
	*Services
	dirty chan struct{}
}

func newMemory(s *Services) *memory { return &memory{s, make(chan struct{}, 1)} }

func (m *memory) changed() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// Pauses between two writes. The file is written whole, so that the time that this takes is to be a small part of all.
const (
	minSavePause = time.Second
	savePart     = 50
)

// run writes until ctx ends; what is new then is still written.
func (m *memory) run(ctx context.Context) {
	pause := minSavePause
	for {
		select {
		case <-ctx.Done():
			select {
			case <-m.dirty:
				m.save()
			default:
			}
			return
		case <-m.dirty:
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = max(minSavePause, savePart*m.save())
	}
}

// save writes now, and says how long that took.
func (m *memory) save() time.Duration {
	start := time.Now()
	if err := save(m.File, m.Intent.State()); err != nil {
		// The agent works on; only a start without the API server would miss this change.
		m.Log.Error("Services are not remembered", "err", err)
	}
	return time.Since(start)
}
