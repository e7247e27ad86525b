// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"errors"
	"net/http"
)

// Tag is an error-tag of RFC 6241, appendix A.
type Tag string

// The tags that are used.
const (
	InUse                 Tag = "in-use"
	InvalidValue          Tag = "invalid-value"
	TooBig                Tag = "too-big"
	MissingElement        Tag = "missing-element"
	BadElement            Tag = "bad-element"
	UnknownElement        Tag = "unknown-element"
	AccessDenied          Tag = "access-denied"
	LockDenied            Tag = "lock-denied"
	ResourceDenied        Tag = "resource-denied"
	DataExists            Tag = "data-exists"
	DataMissing           Tag = "data-missing"
	OperationNotSupported Tag = "operation-not-supported"
	OperationFailed       Tag = "operation-failed"
	MalformedMessage      Tag = "malformed-message"
)

// statuses are those of RFC 8040, section 7.
var statuses = map[Tag]int{
	InUse: http.StatusConflict, InvalidValue: http.StatusBadRequest, TooBig: http.StatusRequestEntityTooLarge,
	MissingElement: http.StatusBadRequest, BadElement: http.StatusBadRequest, UnknownElement: http.StatusBadRequest,
	AccessDenied: http.StatusForbidden, LockDenied: http.StatusConflict, ResourceDenied: http.StatusConflict,
	DataExists: http.StatusConflict, DataMissing: http.StatusConflict,
	OperationNotSupported: http.StatusNotImplemented, OperationFailed: http.StatusInternalServerError,
	MalformedMessage: http.StatusBadRequest,
}

// Error is a problem of a request, as RFC 8040, section 7.1 reports it.
type Error struct {
	Tag Tag
	// Status is that of the answer; 0: the usual one of the tag.
	Status  int
	Path    string // of the node; empty: of no single one
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// HTTPStatus is the status of the answer.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return statuses[e.Tag]
}

// Is compares tags, so that errors.Is works with &Error{Tag: …}.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Tag == e.Tag
}

// Fail makes an Error of a node.
func Fail(tag Tag, path, message string) *Error {
	return &Error{Tag: tag, Path: path, Message: message}
}

// NotFound is the answer to a request of a node that is not there.
func NotFound(path string) *Error {
	return &Error{Tag: InvalidValue, Status: http.StatusNotFound, Path: path, Message: "there is no such data"}
}
