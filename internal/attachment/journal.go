// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/statefile"
)

// journal is a file to which changes are appended. Each commit is one line: the
// CRC-32C of the rest in 8 hexadecimal digits, a space, and a JSON list of changes.
// So a commit is either whole in the file or not in it, damage is found, and a
// person can read it. A file that has grown is replaced by one with what holds now.
type journal struct {
	path string
	file *os.File
	size int64 // of whole lines

	// reserve is how much of the disk is set aside ahead of the end of the file.
	reserve int64
	// unsure is set when the disk failed: what is in the file is not known, and the
	// next commit replaces it.
	unsure bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readJournal calls replay for each change in the file, in order. A last line that
// was cut off by a crash was never acknowledged and is removed. Other damage is a
// *CorruptError. The file is made if it is not there.
func readJournal(path string, reserve int64, replay func(change) error) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, file: f, reserve: reserve}
	if err := j.replay(replay); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

func (j *journal) replay(replay func(change) error) error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return fmt.Errorf("read state file %s: %w", j.path, err)
	}
	for number := 1; len(data) > 0; number++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		changes, err := decodeLine(line)
		if !whole || err != nil && torn(data, j.size) {
			break
		}
		for _, c := range changes {
			if err == nil {
				err = replay(c)
			}
		}
		if newer, ok := errors.AsType[*newerError](err); ok {
			return &NewerError{Path: j.path, Line: number, What: newer.what}
		}
		if err != nil {
			return &CorruptError{Path: j.path, Line: number, Err: err}
		}
		j.size += int64(len(line)) + 1
		data = rest
	}
	if len(data) == 0 {
		return nil
	}
	// What is left of a torn commit would damage the next one.
	if err := j.file.Truncate(j.size); err != nil {
		return fmt.Errorf("state file %s: remove the commit that a crash cut off: %w", j.path, err)
	}
	return nil
}

// torn says whether the end of a file, which starts with a bad line, is what a power
// loss during the last commit leaves: a line without its end, or with sectors of the
// disk that were never written and read as zeros. A commit is not begun before the
// last one is on disk, so no good line can follow.
func torn(end []byte, offset int64) bool {
	if end[len(end)-1] == '\n' && !hasZeroSector(end, offset) {
		return false
	}
	for line := range bytes.Lines(end) {
		if _, err := decodeLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			return false
		}
	}
	return true
}

// hasZeroSector looks at what starts at an offset of the file.
func hasZeroSector(data []byte, offset int64) bool {
	const sector = 512
	for len(data) > 0 {
		part := data[:min(len(data), sector-int(offset%sector))]
		if len(bytes.Trim(part, "\x00")) == 0 {
			return true
		}
		data, offset = data[len(part):], offset+int64(len(part))
	}
	return false
}

// append makes changes durable. On an error nothing was appended, as far as can be
// known.
func (j *journal) append(changes []change) error {
	line, err := encodeLine(changes)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(line); err != nil {
		j.unsure = j.file.Truncate(j.size) != nil
		return err
	}
	if err := unix.Fdatasync(int(j.file.Fd())); err != nil {
		j.unsure = true
		return err
	}
	j.size += int64(len(line))
	return nil
}

// replace makes the file hold the given lines, by way of a new file. On an error the
// old one is still there.
func (j *journal) replace(lines [][]change) error {
	next := &journal{path: j.path, reserve: j.reserve}
	f, err := statefile.Replace(j.path, func(f *os.File) error {
		next.file = f
		return next.fill(lines)
	})
	if f == nil {
		return err
	}
	j.close()
	*j = *next
	// Until the new name is durable, a commit to this file is not.
	j.unsure = err != nil
	return err
}

// fill writes a new file.
func (j *journal) fill(lines [][]change) error {
	j.setAside()
	for _, changes := range lines {
		line, err := encodeLine(changes)
		if err != nil {
			return err
		}
		if _, err := j.file.Write(line); err != nil {
			return err
		}
		j.size += int64(len(line))
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// setAside gives the file disk blocks beyond its end, so that pods can still be
// deleted, and some added, on a full disk. It does what it can: whether there is
// room is seen by each write.
func (j *journal) setAside() {
	_ = unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, j.reserve)
}

func encodeLine(changes []change) ([]byte, error) {
	text, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

var errChecksum = errors.New("checksum does not match")

func decodeLine(line []byte) ([]change, error) {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	if string(sum) != fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) {
		return nil, errChecksum
	}
	var changes []change
	return changes, json.Unmarshal(text, &changes)
}
