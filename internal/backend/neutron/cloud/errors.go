// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// refusal is why Neutron does not make a call for an object.
type refusal struct {
	gone   bool   // what the call is about is not there
	reason string // as conditions have it
	text   string
	// uncertain says that the call may have had its effect.
	uncertain bool
	// forbidden says that Neutron's policy does not let the user make it.
	forbidden bool
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
	reasonOctavia = "RefusedByOctavia"
)

// noWay is the type of a 404 about a floating IP of which all is there that the call names, and no
// router with a gateway leads from its port to its network: to read all anew finds nothing.
const noWay = "ExternalGatewayForFloatingIPNotFound"

// classify makes the error of a call a *refusal, a *busy or an *outage.
func classify(err error, now time.Time) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return &outage{err: err}
	}
	f := faultOf(answer.Body)
	switch code := answer.Actual; {
	case f.octavia && code == http.StatusConflict && pending(f.text):
		return &busy{f.text}
	case code == http.StatusNotFound && f.kind != noWay:
		return &refusal{gone: true, reason: f.reason(reasonRefused), text: f.text}
	case f.kind == "OverQuota", f.octavia && code == http.StatusForbidden && strings.HasPrefix(f.text, "Quota "):
		return &refusal{reason: reasonQuota, text: f.text}
	case code == http.StatusServiceUnavailable && f.kind != "" && f.kind != "ServiceUnavailable":
		// It is about this call: no tenant network is left, say.
		return &refusal{reason: reasonFailed, text: f.text, uncertain: true}
	case code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable,
		code == http.StatusBadGateway, code == http.StatusGatewayTimeout, code == http.StatusRequestTimeout:
		value := answer.ResponseHeader.Get("Retry-After")
		return &outage{err: err, after: retryAfter(value, now), says: value != ""}
	case code >= http.StatusInternalServerError:
		return &refusal{reason: f.reason(reasonFailed), text: f.text, uncertain: true}
	}
	return &refusal{
		reason: f.reason(reasonRefused), text: f.text, forbidden: answer.Actual == http.StatusForbidden,
	}
}

// about is what is refused of a kind, and what to do about it if that is not evident.
func (r *refusal) about(k resource.Kind) string {
	if r.forbidden && (k == resource.BGPVPN || k == resource.Association) {
		return r.text + ": " + bgpvpnPolicy
	}
	return r.text
}

// fault is what an answer says of an error.
type fault struct {
	kind, text string
	octavia    bool // it is an answer of Octavia, and not of Neutron
}

func faultOf(body []byte) fault {
	var answer struct {
		NeutronError struct{ Type, Message string }
		FaultString  string
	}
	switch err := json.Unmarshal(body, &answer); {
	case err != nil:
	case answer.FaultString != "":
		return fault{text: answer.FaultString, octavia: true}
	case answer.NeutronError.Message != "":
		return fault{kind: answer.NeutronError.Type, text: answer.NeutronError.Message}
	}
	return fault{text: string(body)}
}

// reason is that of a refusal, given the one of Neutron.
func (f fault) reason(ofNeutron string) string {
	if f.octavia {
		return reasonOctavia
	}
	return ofNeutron
}

// pending reports whether Octavia refuses a change since it makes another one.
func pending(text string) bool {
	return strings.Contains(text, "immutable") || strings.HasPrefix(text, "Invalid state PENDING")
}

// busy says that Octavia is changing what a call is about.
type busy struct{ text string }

// Error implements error.
func (b *busy) Error() string { return b.text }

// pause is how long to leave Neutron alone, given how long one would, and how long at least if it
// says so itself.
func (o *outage) pause(usual func() time.Duration, least time.Duration) time.Duration {
	if o.says {
		return max(o.after, least)
	}
	return usual()
}

// asked is how long an answer asks to be left alone; 0: it does not say.
func (o *outage) asked() time.Duration {
	if !o.says {
		return 0
	}
	return max(o.after, readPause)
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

// gone reports whether a call was refused since what it is about is not there.
func gone(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.gone
}

// Busy reports whether Octavia is changing what a call was about: it is to be tried again.
func Busy(err error) bool {
	var b *busy
	return errors.As(err, &b)
}

// Refused is why a call is not made; false: calls are of no use now.
func Refused(err error) (reason, text string, ok bool) {
	var refused *refusal
	if !errors.As(err, &refused) {
		return "", "", false
	}
	return refused.reason, refused.text, true
}

// Away reports whether calls are of no use now.
func Away(err error) bool {
	var away *outage
	return errors.As(err, &away)
}

// RetryAfter is how long an answer asks to be left alone; 0: it does not say.
func RetryAfter(err error) time.Duration {
	var away *outage
	if errors.As(err, &away) {
		return away.asked()
	}
	return 0
}
