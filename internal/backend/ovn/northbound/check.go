// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/agentapi"
)

// settleTime is how long what differs without a reason may take to be mended: the database tells of
// what a transaction has changed after its answer.
const settleTime = 3 * time.Second

// mostFindings are in an answer: of a database that was wiped and takes no changes there would be
// one for each row.
const mostFindings = 100

// question asks for one comparison of all rows. What differs counts when there is a reason for it,
// or when it is still there at last.
type question struct {
	answer chan<- agentapi.OVNCheck // has room for it
	last   time.Time
}

// Check compares all rows that are wanted with those of the database, after what is to be written
// has been written, and writes nothing else. Differences that the controller is about to mend are
// left out; they count if it cannot, with the reason, or if they stay. Rows of other systems and
// clusters are not looked at.
func (c *Client) Check(ctx context.Context) (agentapi.OVNCheck, error) {
	s := c.current.Load()
	if s == nil {
		return agentapi.OVNCheck{}, ErrNotConnected
	}
	answer := make(chan agentapi.OVNCheck, 1)
	select {
	case c.questions <- question{answer, time.Now().Add(settleTime)}:
	case <-s.done:
		return agentapi.OVNCheck{}, ErrNotConnected
	case <-ctx.Done():
		return agentapi.OVNCheck{}, ErrUnreachable
	}
	select {
	case a := <-answer:
		return a, nil
	case <-s.done:
		return agentapi.OVNCheck{}, ErrNotConnected
	case <-ctx.Done():
		return agentapi.OVNCheck{}, ErrUnreachable
	}
}

// CheckOr is Check, in which it is a finding that the database cannot be used. Failure is why it is
// not as wanted, if that is known.
func (c *Client) CheckOr(ctx context.Context, failure func() error) agentapi.OVNCheck {
	check, err := c.Check(ctx)
	if err != nil {
		err = cmp.Or(failure(), err)
		check.Findings.Add("northbound", strings.Join(c.o.Remotes, ","), "has not been compared: %v", err)
	}
	return check
}

// questions are those that one connection has not answered yet.
type questions []question

// answer answers after a pass which can be answered: all of them if nothing differs, or only what
// there is a reason for.
func (q *questions) answer(w *writer, failure error) {
	if len(*q) == 0 {
		return
	}
	now, list := time.Now(), w.differences(failure)
	settled := !slices.ContainsFunc(list, func(d difference) bool { return d.reason == nil })
	*q = slices.DeleteFunc(*q, func(asked question) bool {
		if !settled && now.Before(asked.last) {
			return false
		}
		asked.answer <- checkOf(w.rows.Len(), list)
		return true
	})
}

// due delivers when the oldest question is to be answered in any case; nil: there is none.
func (q questions) due() <-chan time.Time {
	if len(q) == 0 {
		return nil
	}
	return time.After(time.Until(q[0].last))
}

// differences compares everything after a pass that ended with an error, or with nil.
func (w *writer) differences(failure error) []difference {
	v := w.session.view
	v.mu.Lock()
	defer v.mu.Unlock()
	list := differences(v, w.session.schema, w.rows, w.kept)
	if w.all { // the pass has not tried all rows: the database takes none
		for i := range list {
			if list[i].reason == nil {
				list[i].reason = failure
			}
		}
	}
	return list
}

// checkOf is the answer for what differs.
func checkOf(rows int, list []difference) agentapi.OVNCheck {
	c := agentapi.OVNCheck{OK: len(list) == 0, Rows: rows, Findings: agentapi.Findings{}}
	if c.More = len(list) - mostFindings; c.More > 0 {
		list = list[:mostFindings]
	}
	c.More = max(c.More, 0)
	for _, d := range list {
		object := d.ref.Table
		if d.name != "" {
			object += " " + d.name
		}
		c.Findings.Add("row", object, "%s", d.text())
	}
	return c
}
