// SPDX-License-Identifier: Apache-2.0

// Package reviews remembers what the Kubernetes API, or a slow hash, says of credentials. Any
// client may send some, so the number of reviews is bounded: credentials that were not accepted
// lately share a rate, and many requests with the same ones wait for one review.
package reviews

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// knownFor is how long credentials that were accepted are reviewed again before strangers'.
	knownFor  = time.Hour
	maxCached = 1024
	timeout   = 10 * time.Second
)

// ErrTooMany says that too many credentials wait to be reviewed.
var ErrTooMany = errors.New("too many credentials wait to be reviewed, try again")

// Limits bound what clients can cause.
type Limits struct {
	// An answer holds for so long: a client that has lost its rights keeps them meanwhile.
	Accepted, Refused time.Duration
	// Reviews in a second, and at once, of credentials that were not accepted lately.
	Strangers rate.Limit
	Burst     int
}

// Verdict is the answer of a review.
type Verdict[T any] struct {
	Accepted bool
	Answer   T
}

// Cache remembers Verdicts. It is safe for concurrent use. New makes it.
type Cache[T any] struct {
	limits    Limits
	reviews   singleflight.Group
	strangers *rate.Limiter
	// known are credentials that were accepted, verdicts the last one of each; both by digest.
	known, verdicts *cache.LRUExpireCache
}

// New makes a Cache that knows nothing.
func New[T any](l Limits) *Cache[T] {
	return &Cache[T]{
		limits: l, strangers: rate.NewLimiter(l.Strangers, l.Burst),
		known: cache.NewLRUExpireCache(maxCached), verdicts: cache.NewLRUExpireCache(maxCached),
	}
}

// Of is the Verdict of credentials, by review if none is remembered. Errors are ErrTooMany and
// those of review, which are not remembered.
func (c *Cache[T]) Of(
	ctx context.Context, credentials string, review func(context.Context) (Verdict[T], error),
) (Verdict[T], error) {
	digest := sha256.Sum256([]byte(credentials))
	if v, ok := c.verdicts.Get(digest); ok {
		return v.(Verdict[T]), nil
	}
	if _, known := c.known.Get(digest); !known && !c.strangers.Allow() {
		return Verdict[T]{}, ErrTooMany
	}
	// Other requests wait for the same answer, so it does not end with this one.
	v, err, _ := c.reviews.Do(string(digest[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		v, err := review(ctx)
		switch {
		case err != nil:
		case v.Accepted:
			c.known.Add(digest, true, knownFor)
			c.verdicts.Add(digest, v, c.limits.Accepted)
		default:
			c.known.Remove(digest)
			c.verdicts.Add(digest, v, c.limits.Refused)
		}
		return v, err
	})
	if err != nil {
		return Verdict[T]{}, err
	}
	return v.(Verdict[T]), nil
}
