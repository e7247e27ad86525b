// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout bounds the wait for an agent that is about to end.
var lockTimeout = 10 * time.Second

// reserveBytes of disk are set aside: enough for the life of some hundred pods.
const reserveBytes = 1 << 20

// Open opens the state file, creating it and its directory if they are not there,
// and reads it. Errors: ErrLocked, a *CorruptError, a *NewerError, or
// what the file system said.
func Open(path string) (*Store, error) { return open(path, reserveBytes) }

func open(path string, reserve int64) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	s := &Store{
		path: path, lock: lock,
		byKey:     map[Key]Attachment{},
		pending:   map[Key]bool{},
		addresses: map[place]Key{},
		macs:      map[macPlace]Key{},
		ports:     map[uint32]Key{},
		vlans:     map[vlanPlace]Key{},
		cursors:   cursors{Addresses: map[netip.Prefix]netip.Addr{}},
		held:      map[place]string{},
		leases:    map[Key]Lease{},
		leased:    map[place]string{},
		objects:   map[string]map[string][]byte{},
		unknown:   map[Key]fields{},

		releasedByID: map[string]Released{},
		releasedAt:   map[place]string{},
		releases:     make(chan struct{}),
	}
	if err := s.read(reserve); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// read fills the store. A new file gets its first line. An existing one is not written
// to, so that an agent can start on a full disk.
func (s *Store) read(reserve int64) error {
	first := true
	j, err := readJournal(s.path, reserve, func(c change) error {
		if first && c.Format > formatVersion {
			return &newerError{fmt.Sprintf("it in format %d", c.Format)}
		}
		if first && c.Format != formatVersion {
			return fmt.Errorf("has format %d, this release reads %d", c.Format, formatVersion)
		}
		first = false
		return s.apply(c)
	})
	if err != nil {
		return err
	}
	s.journal = j
	if j.size > 0 {
		j.setAside()
		return nil
	}
	if err := j.replace([][]change{{{Format: formatVersion}}}); err != nil {
		return &WriteError{Path: s.path, Err: err}
	}
	return nil
}

// Close ends the use of the file. A commit under way is finished first; later changes
// fail.
func (s *Store) Close() error {
	s.diskMu.Lock()
	defer s.diskMu.Unlock()
	var err error
	if s.journal != nil {
		err = s.journal.close()
		s.journal = nil
	}
	s.lock.Close()
	return err
}

// lockFile takes a lock that ends with the process. The kernel has no wait for it
// with a time limit, so it is asked again until the other agent is gone.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.After(lockTimeout)
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-retry.C:
		case <-deadline:
			f.Close()
			return nil, ErrLocked
		}
	}
}
