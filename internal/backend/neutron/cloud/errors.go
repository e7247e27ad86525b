// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// refusal is why Neutron does not make a call for an object.
type refusal struct {
	gone   bool   // what the call is about is not there
	reason string // as conditions have it
	text   string
	// uncertain says that the call may have had its effect.
	uncertain bool
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// outage says that calls are of no use now.
type outage struct {
	err error
	// after is how long Neutron asks to be left alone, if it says so.
	after time.Duration
	says  bool
}

// Error implements error.
func (o *outage) Error() string { return o.err.Error() }

// Unwrap returns what was met.
func (o *outage) Unwrap() error { return o.err }

// The reasons of refusals.
const (
	reasonQuota   = "QuotaExceeded"
	reasonRefused = "RefusedByNeutron"
	reasonFailed  = "NeutronFailed"
)

// classify makes the error of a call a *refusal or an *outage.
func classify(err error, now time.Time) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return &outage{err: err}
	}
	kind, text := message(answer.Body)
	switch code := answer.Actual; {
	case code == http.StatusNotFound:
		return &refusal{gone: true, reason: reasonRefused, text: text}
	case kind == "OverQuota":
		return &refusal{reason: reasonQuota, text: text}
	case code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable,
		code == http.StatusBadGateway, code == http.StatusGatewayTimeout, code == http.StatusRequestTimeout:
		value := answer.ResponseHeader.Get("Retry-After")
		return &outage{err: err, after: retryAfter(value, now), says: value != ""}
	case code >= http.StatusInternalServerError:
		return &refusal{reason: reasonFailed, text: text, uncertain: true}
	}
	return &refusal{reason: reasonRefused, text: text}
}

// message is what an answer of Neutron says of an error.
func message(body []byte) (kind, text string) {
	var answer struct {
		NeutronError struct{ Type, Message string }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.NeutronError.Message == "" {
		return "", string(body)
	}
	return answer.NeutronError.Type, answer.NeutronError.Message
}

// pause is how long to leave Neutron alone, given how long one would.
func (o *outage) pause(usual func() time.Duration) time.Duration {
	if o.says {
		return max(o.after, readPause)
	}
	return usual()
}

// maxAfter bounds how long a header may keep calls away.
const maxAfter = 5 * time.Minute

// retryAfter reads the header Retry-After (RFC 9110, section 10.2.3): seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	after := time.Duration(0)
	if seconds, err := strconv.Atoi(value); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), maxAfter)
}
