// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
)

// ErrExists says that an attachment of the same key is there already.
var ErrExists = errors.New("is attached already")

// ErrGone says that there is no attachment of the key, or that it is on its way out.
var ErrGone = errors.New("is not attached")

// ErrNoPort says that all OpenFlow port numbers for pods are taken.
var ErrNoPort = errors.New("all OpenFlow port numbers of the integration bridge are in use")

// ErrLocked says that another process has the state file open.
var ErrLocked = errors.New("another coelan-agent of this node has it open")

var errClosed = errors.New("it is closed")

// CorruptError says that the state file cannot be believed.
type CorruptError struct {
	Path string
	Line int
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("state file %s is damaged in line %d: %v; drain the node, move the file away and start the agent again",
		e.Path, e.Line, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// NewerError reports a state file in which a newer release wrote something that this release must
// not ignore. The file is whole, and stays as it is.
type NewerError struct {
	Path string
	Line int
	What string // such as "an entry of kind lease"
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("state file %s, line %d: a newer release of Coelan wrote %s, which this release cannot skip; "+
		"run that release again, or drain the node, move the file away and start the agent again", e.Path, e.Line,
		e.What)
}

// newerError is a NewerError before the place in the file is known.
type newerError struct{ what string }

func (e *newerError) Error() string { return e.what + " of a newer release" }

// WriteError says that a change could not be made durable, and so was not made.
type WriteError struct {
	Path string
	Err  error // such as ENOSPC or EROFS
}

func (e *WriteError) Error() string { return fmt.Sprintf("write state file %s: %v", e.Path, e.Err) }

func (e *WriteError) Unwrap() error { return e.Err }
