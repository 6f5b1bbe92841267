// Go's concurrency.Mutex at the work of bench.work: contenders that acquire, count and release, for a given time.
//
// Takes the work as JSON and prints the tally as JSON, as `python -m bench.worker` does. Built by bench.go_subject.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const leaseSeconds = 10 // bench.subjects.LEASE

type work struct {
	URL        string  `json:"url"`
	Contenders int     `json:"contenders"`
	Seconds    float64 `json:"seconds"`
	Hot        bool    `json:"hot"`
	Ramp       float64 `json:"ramp"`
	StartAt    float64 `json:"start_at"`
	Process    int     `json:"process"`
}

type tally struct {
	Sections []int     `json:"sections"`
	Waits    []float64 `json:"waits"`
	Seconds  float64   `json:"seconds"`
	CPU      float64   `json:"cpu"`
	Commands *int      `json:"commands"`
	Total    int       `json:"total"`
}

// A section is recorded when its lock is granted; the lock of each contender is its own.
type contender struct {
	guard   sync.Mutex
	granted []time.Time
	waits   []float64
}

func (c *contender) run(mutex *concurrency.Mutex) {
	ctx := context.Background()
	for {
		called := time.Now()
		check(mutex.Lock(ctx))
		now := time.Now()
		c.guard.Lock()
		c.granted = append(c.granted, now)
		c.waits = append(c.waits, now.Sub(called).Seconds())
		c.guard.Unlock()
		check(mutex.Unlock(ctx))
	}
}

func main() {
	var job work
	check(json.Unmarshal([]byte(os.Args[1]), &job))
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(strings.TrimPrefix(job.URL, "etcd://"), ","),
		DialTimeout: 10 * time.Second,
	})
	check(err)
	contenders := make([]*contender, job.Contenders)
	// A session holds a lock once: contenders for one key need one each, those of own keys share one.
	var session *concurrency.Session
	for number := range contenders {
		if session == nil || job.Hot {
			session, err = concurrency.NewSession(client, concurrency.WithTTL(leaseSeconds))
			check(err)
		}
		key := "/locks/hot"
		if !job.Hot {
			key = fmt.Sprintf("/locks/own:%d:%d", job.Process, number)
		}
		contenders[number] = &contender{}
		go contenders[number].run(concurrency.NewMutex(session, key))
	}
	ramp := job.Ramp
	if left := job.StartAt - monotonic(); left > ramp {
		ramp = left
	}
	sleep(ramp)
	began, cpu := time.Now(), cpuSeconds()
	sleep(job.Seconds)
	ended := time.Now()
	done := tally{Seconds: ended.Sub(began).Seconds(), CPU: cpuSeconds() - cpu}
	for _, one := range contenders {
		one.guard.Lock()
		first := sort.Search(len(one.granted), func(i int) bool { return !one.granted[i].Before(began) })
		last := sort.Search(len(one.granted), func(i int) bool { return one.granted[i].After(ended) })
		done.Sections = append(done.Sections, last-first)
		done.Waits = append(done.Waits, one.waits[first:last]...)
		done.Total += last
		one.guard.Unlock()
	}
	check(json.NewEncoder(os.Stdout).Encode(done))
}

// The clock of Python's time.monotonic(), which the processes of a round agree on.
func monotonic() float64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		panic(failed)
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func sleep(seconds float64) { time.Sleep(time.Duration(seconds * float64(time.Second))) }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
