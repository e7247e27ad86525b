// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"iter"
)

// replaceAbove is the size of the file in bytes above which it is replaced when it
// is more than twice what it was after the last time.
const replaceAbove = 256 << 10

// write is a list of changes that waits for a commit.
type write struct {
	changes []change
	done    chan error // buffered
}

// commit makes changes durable and then applies them in memory: all of them, or none
// and a *WriteError. Writes that arrive while another commit waits for the disk share
// the next one, so that eight pods that start together wait for two commits, not eight.
func (s *Store) commit(changes ...change) error {
	w := &write{changes: changes, done: make(chan error, 1)}
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
		err := s.commitBatch(batch)
		for _, w := range batch {
			w.done <- err
		}
	}
}

func (s *Store) commitBatch(batch []*write) error {
	s.diskMu.Lock()
	defer s.diskMu.Unlock()
	if s.journal == nil {
		return &WriteError{Path: s.path, Err: errClosed}
	}
	var changes []change
	for _, w := range batch {
		changes = append(changes, w.changes...)
	}
	if err := s.toDisk(changes); err != nil {
		return &WriteError{Path: s.path, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if err := s.apply(c); err != nil {
			return err // not reached: what is committed was reserved before
		}
	}
	return nil
}

// toDisk appends the changes, or replaces the file if that is due. A replacement that
// fails does no harm, unless the file is not to be trusted.
func (s *Store) toDisk(changes []change) error {
	if s.journal.unsure || s.journal.size > max(replaceAbove, 2*s.compactSize) {
		if err := s.journal.replace(append(s.content(), changes)); err != nil && s.journal.unsure {
			return err
		} else if err == nil {
			s.compactSize = s.journal.size
			return nil
		}
	}
	return s.journal.append(changes)
}

// content is what a new file begins with: what is true before the commit under way.
func (s *Store) content() [][]change {
	s.mu.RLock()
	defer s.mu.RUnlock()
	lines := [][]change{{{Format: formatVersion}}}
	for c := range s.all() {
		lines = append(lines, []change{c})
	}
	return lines
}

// all lists the changes that make what the store holds.
func (s *Store) all() iter.Seq[change] {
	return func(yield func(change) bool) {
		spaces := map[string]bool{}
		for _, a := range s.byKey {
			spaces[a.space()] = true
			if !yield(change{Put: &a, unknown: s.unknown[a.Key]}) {
				return
			}
		}
		for kind, objects := range s.objects {
			for name, data := range objects {
				if !yield(saved(object{Kind: kind, Name: name, Data: data})) {
					return
				}
			}
		}
		// After the attachments: each Put moves the cursors.
		at := s.cursors.pruned(spaces)
		if !yield(change{Cursors: &at}) {
			return
		}
		for _, c := range s.kept {
			if !yield(c) {
				return
			}
		}
	}
}
