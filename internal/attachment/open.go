// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
)

// The buckets of the state file, and what stands in the bucket meta.
var (
	attachmentsBucket = []byte("attachments") // key string → record of an Attachment
	nodesBucket       = []byte("nodes")       // node name → record of bytes that only the agent reads
	metaBucket        = []byte("meta")

	versionKey = []byte("version")
	cursorsKey = []byte("cursors") // record of cursors
)

// formatVersion is the version of the file's layout.
const formatVersion = "1"

// lockTimeout bounds the wait for an agent that is about to end.
const lockTimeout = 10 * time.Second

// reserveBytes of disk are set aside when the file is opened: enough for some
// hundred attachments, so that pods can still be deleted on a full disk.
const reserveBytes = 1 << 20

// Open opens the state file, creating it and its directory if they are not there,
// and reads all of it into memory. Errors: ErrLocked, a *CorruptError, or what the
// file system said.
func Open(path string) (*Store, error) { return open(path, reserveBytes) }

func open(path string, reserve int64) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	db, err := openDB(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		path: path, db: db,
		byKey:     map[Key]Attachment{},
		pending:   map[Key]bool{},
		addresses: map[netip.Addr]Key{},
		macs:      map[intent.MAC]Key{},
		ports:     map[uint32]Key{},
		cursors:   cursors{Addresses: map[netip.Prefix]netip.Addr{}},
	}
	if err := errors.Join(s.initialise(), s.load()); err != nil {
		db.Close()
		return nil, err
	}
	// Best effort: a file system without it, or a full disk, still has what was
	// written before, and each later write says itself whether it could be made.
	_ = preallocate(path, reserve)
	return s, nil
}

func openDB(path string) (*bolt.DB, error) {
	// Without the freelist on disk each commit writes less; it is rebuilt here.
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
	})
	var pathErr *os.PathError
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state file %s: %w", path, ErrLocked)
	case errors.As(err, &pathErr), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EIO):
		return nil, fmt.Errorf("state file %s: %w", path, err)
	default:
		return nil, &CorruptError{Path: path, Err: err}
	}
}

// initialise makes the buckets of a new file. An existing one is not written to,
// so that an agent can start on a full disk.
func (s *Store) initialise() error {
	var version string
	if err := s.view(func(tx *bolt.Tx) error {
		if b := tx.Bucket(metaBucket); b != nil {
			version = string(b.Get(versionKey))
		}
		return nil
	}); err != nil {
		return &CorruptError{Path: s.path, Err: err}
	}
	switch version {
	case formatVersion:
		return nil
	case "":
	default:
		return fmt.Errorf("state file %s has format %q, this agent reads %q: it was written by another release",
			s.path, version, formatVersion)
	}
	if err := s.commit(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{attachmentsBucket, nodesBucket, metaBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(versionKey, []byte(formatVersion))
	}); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.path))
}

// load checks the file and fills the indexes. No two attachments may have the same
// address, MAC or port: such a file is damaged.
func (s *Store) load() error {
	err := s.view(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		if err := tx.Bucket(attachmentsBucket).ForEach(s.loadAttachment); err != nil {
			return err
		}
		if v := tx.Bucket(metaBucket).Get(cursorsKey); v != nil {
			return readRecord(v, &s.cursors)
		}
		return nil
	})
	if err != nil {
		return &CorruptError{Path: s.path, Err: err}
	}
	return nil
}

func (s *Store) loadAttachment(key, value []byte) error {
	var a Attachment
	if err := readRecord(value, &a); err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	if a.Key.String() != string(key) {
		return fmt.Errorf("attachment %s: holds the record of %s", key, a.Key)
	}
	if other, taken := s.conflict(a); taken {
		return fmt.Errorf("attachments %s and %s have the same address, MAC or port", a.Key, other)
	}
	s.reserve(a)
	s.byKey[a.Key] = a
	return nil
}

// Close ends the use of the file. Changes under way are finished first; later ones
// fail.
func (s *Store) Close() error { return s.db.Close() }

// preallocate gives the file its disk blocks ahead, without changing its length.
func preallocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// syncDir makes the file's name in its directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// cursors are where the next search for a free address or port begins, so that
// what was released last is handed out last.
type cursors struct {
	Addresses map[netip.Prefix]netip.Addr `json:"addresses"` // by podCIDR
	Port      uint32                      `json:"port"`
}
