//! The names of a scenario: where each was placed, how far it came, and who is woken when.
//!
//! What a pool holds is the pool's to know. A record only remembers what the steps that name
//! nothing but the name need: its pools, the future it waits in, and what to tell of it.
#![forbid(unsafe_code)]

use super::outcome::{Answer, Outcome, State};
use super::request;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use vacancy::{AdmitAs, AdmittedAs, Choice, Error, Rank, Request, RequestId};

/// One booking of a name.
pub struct Leg {
    /// Index of its pool.
    pub station: usize,
    /// Where the load is.
    pub rank: Rank,
    /// Why there; gone once the leg was moved to another rank.
    pub choice: Option<Choice>,
    /// Whether it was not given back yet.
    pub live: bool,
}

impl Leg {
    /// A booking that was just made.
    pub fn new(station: usize, choice: Choice) -> Leg {
        Leg { station, rank: choice.rank, choice: Some(choice), live: true }
    }
}

/// How far one name has come.
pub struct Record {
    /// The state that answers tell.
    pub state: State,
    /// Why, if it was refused.
    pub error: Option<Error>,
    /// The pool it asked first.
    pub station: usize,
    /// What it asked for, for its decode leg.
    pub request: Option<Request>,
    /// In the order in which they were placed: prefill, then decode.
    pub legs: Vec<Leg>,
    /// The class it was admitted in.
    pub class: Option<String>,
    /// The rank on which room is set aside for its decode leg, if the first pool keeps such a hold.
    pub hold: Option<Rank>,
    /// The future it waits in. Dropping it withdraws the request.
    waiting: Option<AdmitAs>,
}

impl Record {
    /// A name that asked `station` for `request`.
    pub fn new(state: State, station: usize, request: Option<Request>) -> Record {
        Record {
            state,
            error: None,
            station,
            request,
            legs: Vec::new(),
            class: None,
            hold: None,
            waiting: None,
        }
    }

    /// The pool of its prefill leg.
    pub fn first(&self) -> usize {
        self.legs.first().map_or(self.station, |leg| leg.station)
    }

    /// The pool of its decode leg, or of its only one.
    pub fn last(&self) -> usize {
        self.legs.last().map_or(self.station, |leg| leg.station)
    }

    /// Whether the name is taken.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Waiting | State::Admitted)
    }

    /// Something of it ended; the name ends with the last of its legs and its hold. Whether it did.
    pub fn settle(&mut self) -> bool {
        let over = self.state == State::Admitted
            && self.hold.is_none()
            && !self.legs.iter().any(|leg| leg.live);
        if over {
            self.state = State::Freed;
        }
        over
    }

    /// Withdraws it, if it waits.
    pub fn withdraw(&mut self) {
        if self.waiting.take().is_some() {
            self.state = State::Cancelled;
        }
    }

    fn refuse(&mut self, error: Error) {
        self.state = State::Refused;
        self.error = Some(error);
    }

    fn admitted(&mut self, admitted: AdmittedAs) {
        self.state = State::Admitted;
        self.class = Some(admitted.class.to_string());
        self.hold = admitted.hold;
        self.legs = vec![Leg::new(self.station, admitted.placed.choice)];
    }

    /// Says how far it has come: the state, the error, where it is, and why there.
    pub fn tell(&self, outcome: &mut Outcome) {
        outcome.state = Some(self.state);
        if let Some(error) = &self.error {
            outcome.error = Answer::Refused(error.clone());
        }
        if let Some(leg) = self.legs.iter().rfind(|leg| leg.live) {
            match &leg.choice {
                Some(choice) => outcome.chose(choice),
                None => outcome.placed(leg.rank),
            }
        }
        if self.state == State::Admitted {
            outcome.class = self.class.clone();
            outcome.hold = self.hold.map(Into::into);
        }
    }
}

/// Who was woken, in order.
type Woken = Arc<Mutex<VecDeque<String>>>;

/// The waker of one name.
struct Bell {
    name: String,
    woken: Woken,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push_back(self.name.clone());
    }
}

/// All names so far.
#[derive(Default)]
pub struct Names {
    records: HashMap<String, Record>,
    by_id: HashMap<RequestId, String>,
    woken: Woken,
}

impl Names {
    /// What is known of a name.
    pub fn get(&self, name: &str) -> Option<&Record> {
        self.records.get(name)
    }

    /// What is known of a name.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Record> {
        self.records.get_mut(name)
    }

    /// The name behind an id.
    pub fn of(&self, id: RequestId) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    /// Begins a name anew.
    pub fn put(&mut self, name: &str, record: Record) {
        self.by_id.insert(request::id_of(name), name.to_owned());
        self.records.insert(name.to_owned(), record);
    }

    /// Begins a name that is being admitted, and looks at the answer for the first time. A refusal
    /// leaves a live request of that name alone, and is answered.
    pub fn admit(
        &mut self,
        name: &str,
        station: usize,
        request: Request,
        mut future: AdmitAs,
    ) -> Result<(), Error> {
        let answer = self.poll(name, &mut future);
        if let Poll::Ready(Err(error)) = &answer
            && self.records.get(name).is_some_and(Record::is_live)
        {
            return Err(error.clone());
        }
        let mut record = Record::new(State::Waiting, station, Some(request));
        let mut refusal = Ok(());
        match answer {
            Poll::Pending => record.waiting = Some(future),
            Poll::Ready(Ok(admitted)) => record.admitted(admitted),
            Poll::Ready(Err(error)) => {
                record.refuse(error.clone());
                refusal = Err(error);
            }
        }
        self.put(name, record);
        refusal
    }

    /// Looks at those who were woken, in the order in which they were, until nobody is; answers
    /// whose waiting ended. Only a waker is believed: a request that nobody wakes waits for ever,
    /// as it would in a host.
    pub fn settle(&mut self) -> Vec<String> {
        let mut over = Vec::new();
        while let Some(name) = self.next_woken() {
            let Some(mut future) = self.records.get_mut(&name).and_then(|r| r.waiting.take())
            else {
                continue;
            };
            let answer = self.poll(&name, &mut future);
            let record = self.records.get_mut(&name).expect("looked up above");
            match answer {
                Poll::Pending => record.waiting = Some(future),
                Poll::Ready(answer) => {
                    match answer {
                        Ok(admitted) => record.admitted(admitted),
                        Err(error) => record.refuse(error),
                    }
                    over.push(name);
                }
            }
        }
        over
    }

    fn next_woken(&self) -> Option<String> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn poll(&self, name: &str, future: &mut AdmitAs) -> Poll<Result<AdmittedAs, Error>> {
        let bell = Bell { name: name.to_owned(), woken: Arc::clone(&self.woken) };
        let waker = Waker::from(Arc::new(bell));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }
}
