// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

// write is one change that waits for a commit.
type write struct {
	apply func(*bolt.Tx) error
	done  chan error // buffered
}

// commit makes one change durable. Changes that arrive while another commit is
// waiting for the disk share the next one, so that eight pods that start together
// wait for two commits and not for eight.
func (s *Store) commit(apply func(*bolt.Tx) error) error {
	w := &write{apply: apply, done: make(chan error, 1)}
	s.queueMu.Lock()
	s.queue = append(s.queue, w)
	if !s.committing {
		s.committing = true
		go s.commitQueue()
	}
	s.queueMu.Unlock()
	return <-w.done
}

// commitQueue commits until nothing waits.
func (s *Store) commitQueue() {
	for {
		s.queueMu.Lock()
		batch := s.queue
		s.queue = nil
		s.committing = len(batch) > 0
		s.queueMu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := s.update(batch)
		for _, w := range batch {
			w.done <- err
		}
	}
}

// update applies a batch in one transaction: all of it or nothing.
func (s *Store) update(batch []*write) (err error) {
	defer guard(&err)
	err = s.db.Update(func(tx *bolt.Tx) error {
		for _, w := range batch {
			if err := w.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return &WriteError{Path: s.path, Err: err}
	}
	return nil
}

// guard turns what the database does on damaged pages, a panic or a fault in its
// memory map, into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

// view reads with the same protection. Its error is what fn returned, or what is
// wrong with the file.
func (s *Store) view(fn func(*bolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	return s.db.View(fn)
}
